"""Sizes that are known only at run time: expressions of them, and conversions to text, affine maps and operations."""
