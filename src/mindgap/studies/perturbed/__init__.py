"""PerturbedOPT against its base optimizer, dropout and SAM: Figures 6 and 7, MNIST, variants."""
