"""Local label variance around every sample, and the sample weights made from it."""
