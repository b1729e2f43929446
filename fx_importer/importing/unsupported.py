"""The error for a node that cannot be imported."""


class UnsupportedNodeError(Exception):
    """A node cannot be imported; the message says why. The walker collects these errors."""
