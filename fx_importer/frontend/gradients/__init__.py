"""Gradients in captured programs: of models whose code computes them, and of a loss."""
