"""Training on altered inputs: noise, mixtures, flips and shifts."""
