"""PerturbedOPT against its base optimizer and dropout: Figures 6 to 9, MNIST, variants."""
