"""Where the risk of a training run comes from: the class, the samples, or the optimization."""
