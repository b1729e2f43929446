"""Decompositions of resizing and sampling."""
