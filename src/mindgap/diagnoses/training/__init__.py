"""What the training run did, and whether the model learned its data."""
