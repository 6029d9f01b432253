"""Exact and approximate nearest neighbours: points, candidates, certificates, ties."""
