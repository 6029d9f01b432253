"""Features that layers compute: how classes cluster, how stable and how deep predictions are."""
