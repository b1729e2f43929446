"""Decompositions of Fourier transforms."""
