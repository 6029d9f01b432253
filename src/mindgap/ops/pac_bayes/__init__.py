"""PAC-Bayes bounds, noise fitted to the Hessian, stochastic classifiers and their errors."""
