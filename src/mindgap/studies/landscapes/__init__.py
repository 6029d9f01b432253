"""Loss surfaces: two parameters, saddles, and residual networks with and without skips."""
