"""Decomposition tables, and the passes that apply one to an exported program."""
