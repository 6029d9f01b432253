"""A model that is broken, or that is not evaluated as it was trained."""
