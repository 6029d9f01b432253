"""decompose: where the risk comes from, the class, the samples or the optimization."""
