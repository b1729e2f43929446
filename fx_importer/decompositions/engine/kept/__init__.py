"""Operators that users keep from decomposition: the faults of their C++ lowerings, and the workarounds."""
