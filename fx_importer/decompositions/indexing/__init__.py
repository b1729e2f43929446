"""Decompositions of indexing, scatters, views, copies and data-dependent sizes."""
