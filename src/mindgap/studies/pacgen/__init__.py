"""pacGen: Figures 1 to 5 of Wang et al. (2018), and rescaling of ReLU layers."""
