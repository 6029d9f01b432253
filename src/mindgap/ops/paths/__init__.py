"""Path space of layered ReLU networks: inner products, norms and the constants of Proposition 4."""
