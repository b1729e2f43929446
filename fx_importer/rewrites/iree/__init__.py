"""Rewrites for IREE."""
