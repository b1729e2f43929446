"""Rewrites of buffers for native code, which allocates no memory and returns a status."""
