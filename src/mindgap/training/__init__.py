"""Training: the plain loop, many members at once, and measures taken on the way."""
