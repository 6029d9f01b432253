"""Studies of Lipschitz constants: as capacity over label noise, over depth, and of interpolations."""
