"""Studies of stability: what training on one sample less changes."""
