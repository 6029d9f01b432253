"""mindgap certify: train a PAC-Bayes posterior and compute its certificate."""
