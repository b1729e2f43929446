"""Decompositions of indexing, scattering, views and copies."""
