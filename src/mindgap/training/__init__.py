"""Training: the plain loop, ensembles trained at once, optimizers, probes and certificates."""
