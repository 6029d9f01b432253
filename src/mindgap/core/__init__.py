"""The vocabulary: what is examined, what examines it, and what comes out; no algorithm."""
