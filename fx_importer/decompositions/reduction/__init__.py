"""Decompositions of reductions, scans and histograms."""
