"""Exception for lowerings that are not cached."""


class NotCached(Exception):
    """The lowering cannot be cached; the message says why."""
