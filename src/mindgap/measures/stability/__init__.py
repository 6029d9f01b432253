"""How much a model depends on single samples, and how well its class fits pure noise."""
