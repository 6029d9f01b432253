"""Exact nearest neighbors with ties, for millions of distances.

Read ``search`` first: it chooses a method and turns lists of points into lists of samples.
``points`` merges equal samples and defines the arithmetic, ``source`` streams rows, ``scores``
holds the rounding bounds that make a candidate list certain, ``exact`` scans blocks of a matrix
product and skips those that ``partition`` proves too far, and ``backends`` hold the k-d tree (few
dimensions) and the inverted file (approximate, millions of rows).
"""
