"""Submodules that are traced once, and copied for the others that are equal."""
