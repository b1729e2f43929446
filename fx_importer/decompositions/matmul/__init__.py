"""Decompositions of matrix products."""
