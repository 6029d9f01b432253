"""Attacks: the small change of an input that changes the output most, and what it shows."""
