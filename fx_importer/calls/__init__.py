"""Calls of loaded functions: signatures, arguments, state and sizes."""
