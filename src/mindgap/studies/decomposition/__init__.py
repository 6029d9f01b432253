"""Where the risk of a small network comes from, by samples, width, time and tolerance."""
