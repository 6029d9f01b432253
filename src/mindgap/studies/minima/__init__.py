"""Good and bad minima: both fit all training samples, and only one of them generalizes."""
