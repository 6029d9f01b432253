"""Exact nearest neighbors, ties included, for large tables.

Reading order: ``search`` chooses a method and turns lists of points into lists of samples.
``source`` reads features and labels. ``points`` merges equal samples and defines distances and
ties. ``scores`` holds the rounding bounds that prove a list of candidates complete. ``exact`` scans
blocks of a matrix product and skips the cells that ``partition`` proves too far. ``backends`` holds
the k-d tree (few dimensions) and the inverted file (approximate, for millions of rows).
"""
