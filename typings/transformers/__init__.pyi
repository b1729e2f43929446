"""Of any type: the package's own ``__init__.py`` has pyright read two thousand files."""

from typing import Any

def __getattr__(name: str) -> Any: ...
