# Written by `python -m testing.binding_stubs` from the signatures in the extension module.
from collections.abc import Iterator, Mapping
from typing import Any
from torch_mlir._mlir_libs._mlir import ir


def register_dialect(context: ir.Context, load: bool = True) -> None: ...

def get_int64_max() -> int: ...

def get_int64_min() -> int: ...
