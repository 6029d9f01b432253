"""Certificates: train a PAC-Bayes posterior and bound its risk."""
