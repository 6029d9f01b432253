"""Two-phase training and DARC, of Kawaguchi, Kaelbling and Bengio, against their controls."""
