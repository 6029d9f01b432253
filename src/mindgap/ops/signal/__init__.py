"""What passes through the layers of a network: activations forward, gradients backward."""
