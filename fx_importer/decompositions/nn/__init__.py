"""Decompositions of neural-network operators: attention, normalization, convolution, pooling, losses."""
