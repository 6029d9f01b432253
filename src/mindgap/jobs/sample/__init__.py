"""mindgap sample: evaluate an expensive function where it says most, resume after any kill, write a CSV."""
