"""Training: the plain loop, many members at once, optimizers, probes and certificates."""
