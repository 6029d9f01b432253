"""How much a model depends on single samples, on noise and on its layers' scales."""
