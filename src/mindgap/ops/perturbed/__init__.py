"""Gradients at perturbed weights: the steps of PerturbedOPT, SAM and ASAM."""
