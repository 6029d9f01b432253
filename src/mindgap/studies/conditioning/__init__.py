"""Studies of conditioning: optimizers, normalization, rare words, depth and skip connections (E4)."""
