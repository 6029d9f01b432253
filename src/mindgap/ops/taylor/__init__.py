"""Taylor expansion of a function: the metric Df by forward-mode differentiation or central differences."""
