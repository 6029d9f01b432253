"""Figures 1 to 5 of Wang, Keskar, Xiong and Socher (2018), and rescaling of ReLU layers."""
