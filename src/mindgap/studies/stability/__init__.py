"""Studies of stability: one sample less, initial weights, batch statistics, training itself."""
