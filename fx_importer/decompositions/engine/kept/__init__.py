"""Operators that users keep from decomposition: what the C++ lowerings get wrong of them, and what is done about it."""
