"""improve: what a recipe gains, raced on validation data and proved on fresh seeds."""
