"""What the data alone, or with the labels, say about how hard they are."""
