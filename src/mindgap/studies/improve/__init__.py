"""Studies of improve: how often it is wrong in simulated races, and what it gains on real data."""
