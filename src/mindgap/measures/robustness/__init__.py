"""Measures of robustness: how much a loss changes where inputs are alike."""
