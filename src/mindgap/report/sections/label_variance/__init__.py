"""The section on local label variance: its data, the numbers in words, its figures."""
