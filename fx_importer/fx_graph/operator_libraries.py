"""Packages that register operators: known libraries by namespace, and the place of an operator of this process."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket

LIBRARIES = {
    "fx_importer_integer": "fx_importer.quantization.families",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization",
    "torchvision": "torchvision",
}
"""The module of a known library that registers a namespace. Nothing else is imported for the text of a file."""

_NAMESPACE = re.compile(rb"torch\.ops\.(\w{1,64})\.")


def import_libraries(text: bytes) -> None:
    """Import the known libraries, as far as they are installed, whose operators ``text`` names as ``torch.ops.*``."""
    for namespace in {match.decode() for match in _NAMESPACE.findall(text)} & set(LIBRARIES):
        module = LIBRARIES[namespace]
        if find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)


@dataclass(frozen=True)
class CustomOperator:
    """An operator of ``torch.library.custom_op``, by its functions."""

    name: str
    """``mylib::twice``."""
    schema: str
    mutates: tuple[str, ...]
    function: FunctionType
    fake: FunctionType | None
    backward: FunctionType | None
    setup_context: FunctionType | None


@dataclass(frozen=True)
class Definer:
    """The package that registers an operator; all fields are None if this is unknown."""

    module: str | None = None
    """A module of a known library, or with the name of the namespace."""
    file: str | None = None
    """The Python file."""
    library: str | None = None
    """The library of C++, as ``torch.ops.load_library`` takes it."""
    custom: CustomOperator | None = None


_BUILT_IN = ("aten", "prims", "inductor", "flex_lib", "_c10d_functional", "torch_nn")
_TORCH = str(Path(torch.__file__).parent)
_REGISTERED = re.compile(r"registered at (.+?):\d+")


def definer_of(operator: OpOverload | OpOverloadPacket) -> Definer | None:
    """Return what registers ``operator``; None if importing torch does."""
    namespace, _, name = str(operator).partition(".")
    name, _, overload = name.partition(".")
    if namespace in _BUILT_IN:
        return None
    if namespace in LIBRARIES:
        return Definer(LIBRARIES[namespace])
    qualified = f"{namespace}::{name}"
    if (custom := OPDEFS.get(qualified)) is not None:
        arguments = custom._opoverload._schema.arguments
        mutates = tuple(
            argument.name for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write
        )
        functions = custom._abstract_fn, custom._backward_fn, custom._setup_context_fn
        made = CustomOperator(qualified, custom._schema, mutates, custom._init_fn, *functions)
        return Definer(file=made.function.__code__.co_filename, custom=made)
    dumped = torch._C._dispatch_dump(qualified + (f".{overload}" if overload not in ("", "default") else ""))
    sources = [match[1] for match in _REGISTERED.finditer(dumped)]
    if (entry := singleton.find(qualified)) is not None:
        sources += [kernel.source.rpartition(":")[0] for kernel in entry.fake_impl.kernels]
    if files := [source for source in sources if source.endswith(".py") and not source.startswith(_TORCH)]:
        return Definer(file=files[0])
    if namespace in sys.modules:
        return Definer(namespace)
    loaded = sorted(torch.ops.loaded_libraries)
    if all(source.endswith(".py") for source in sources):
        return Definer()
    return Definer(library=loaded[-1]) if loaded else None
