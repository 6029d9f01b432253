"""Norms of the weights and distances between them."""
