"""attack: how many predictions hold when the inputs are moved a little, with all radii."""
