"""Decompositions of sorting, order statistics and searches."""
