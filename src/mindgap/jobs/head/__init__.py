"""Retrain the last layer with variance-based weights, choose m and k, and compare."""
