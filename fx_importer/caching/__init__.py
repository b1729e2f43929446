"""The cache directory, and the common part of the keys of its entries."""
