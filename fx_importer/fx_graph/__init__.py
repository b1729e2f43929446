"""Exported programs, FX graphs and operators as values."""
