"""Decompositions of random operators to uniform and normal numbers, in float32."""
