"""mindgap head: retrain the last layer with variance-based weights, choose m and k, compare with controls."""
