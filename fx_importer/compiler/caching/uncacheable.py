"""Why a lowering is not kept."""


class NotCached(Exception):
    """What cannot be taken from the cache, or put there, and why."""
