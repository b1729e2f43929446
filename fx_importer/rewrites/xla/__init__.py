"""Rewrites for XLA."""
