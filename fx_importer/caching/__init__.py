"""The cache directory, and what the keys of its entries have in common."""
