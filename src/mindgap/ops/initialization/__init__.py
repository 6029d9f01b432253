"""Initial weights: how variance propagates through a network, schemes, and a fixer."""
