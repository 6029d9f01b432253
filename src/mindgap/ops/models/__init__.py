"""Parts of modules: norms of weights, the last layer and its features, rescaled layers."""
