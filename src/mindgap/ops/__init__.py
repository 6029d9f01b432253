"""Pure tensor functions that know nothing of specs."""
