# Names of torch_mlir.execution_engine are Any: they come from an extension module without types.
from typing import Any

def __getattr__(name: str) -> Any: ...
