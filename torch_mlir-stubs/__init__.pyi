# The wheel's extension modules carry no types, so that pyright would report every name in them. To it they are `Any`.
from typing import Any

def __getattr__(name: str) -> Any: ...
