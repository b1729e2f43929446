"""Decompositions of elementwise operators."""
