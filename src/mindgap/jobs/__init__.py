"""The main jobs, each a page long."""
