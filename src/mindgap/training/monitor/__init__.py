"""The training monitor: norms of gradients, weights, updates and activations while a net learns."""
