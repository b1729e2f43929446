"""Decompositions of operators on complex tensors."""
