"""Rewrites of linalg on tensors."""
