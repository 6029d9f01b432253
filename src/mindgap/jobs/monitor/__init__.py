"""monitor: what the log of a training says, layer by layer, and what to do."""
