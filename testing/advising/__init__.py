"""Failing programs, and how their suggestions are followed."""
