"""Over-fitting: bias and variance by capacity, remedies against it, and noise that is too much."""
