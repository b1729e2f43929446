"""Rewrites on the way from linalg to LLVM."""
