"""Tables and figures of Taylor Based Sampling (TBS)."""
