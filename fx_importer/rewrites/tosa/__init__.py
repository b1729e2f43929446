"""Rewrites of TOSA."""
