"""Captures under assumptions: questions about values that the model's Python asks, answered by the example inputs."""
