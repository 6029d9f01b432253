"""Claims of the lecture slides that come without numbers: copies, optimizers, what generalizes."""
