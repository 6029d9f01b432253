"""Last layers as convex problems: weighted softmax, logistic and least-squares heads."""
