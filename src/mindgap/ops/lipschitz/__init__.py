"""Certified upper bounds and found lower bounds of Lipschitz constants, global and local."""
