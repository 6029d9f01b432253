"""PAC-Bayes: inverse kl and other bounds, Hessian-based posteriors, and draws of noisy weights."""
