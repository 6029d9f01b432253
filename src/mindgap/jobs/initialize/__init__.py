"""initialize: how signals and gradients pass a network's initial weights, and those of schemes."""
