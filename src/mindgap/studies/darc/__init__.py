"""Studies of Kawaguchi, Kaelbling and Bengio, "Generalization in deep learning"."""
