"""Rewrites of the torch dialect."""
