"""Rewrites of StableHLO."""
