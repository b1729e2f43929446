"""Write the types of torch-mlir's extension modules to ``torch_mlir-stubs``: ``python -m testing.binding_stubs``.

nanobind derives them from the signatures in the modules. The wheel's Python files, such as the classes of dialects,
have their types themselves, and the wheel has stubs for other modules.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

FOLDER = Path(__file__).parents[1] / "torch_mlir-stubs"

HEADER = "# Written by `python -m testing.binding_stubs` from the signatures in the extension module.\n"

MODULES = {
    "_mlir": "_mlir/__init__.pyi",
    "_mlir.ir": "_mlir/ir.pyi",
    "_mlir.passmanager": "_mlir/passmanager.pyi",
    "_mlir.rewrite": "_mlir/rewrite.pyi",
    "_stablehlo": "_stablehlo.pyi",
    "_torchMlir": "_torchMlir.pyi",
}
"""Stubs by the extension modules of ``torch_mlir._mlir_libs`` that fx_importer and the dialects' classes use."""

CONTEXT = (
    "def __init__(self, load_on_create_dialects: Sequence[str] | None = None, thread_pool: ThreadPool | None = None)"
    " -> None: ..."
)
"""The constructor of the class with which ``torch_mlir._mlir_libs`` replaces the extension module's ``Context``."""

CHANGES = {
    r"^import \S*ir\n": "",
    r"\n\n\n+": "\n\n",
    r"\bSelf, |^    Self,\n": "",
    r"^from typing_extensions import Buffer, ": (
        "from numpy.typing import NDArray\nimport typing_extensions\nfrom typing_extensions import Buffer, Self, "
    ),
    r"(class Context:\n    )def __init__.*": rf"\1{CONTEXT}",
    # A value whose type is not said has any type.
    r'(?<=^_T = )TypeVar\("_T", bound=Type': 'typing_extensions.TypeVar("_T", bound=Type, default=Any',
    # Arrays are buffers to Python's types from 3.12 on.
    r"(?<=: )Buffer\b": "Buffer | NDArray[Any]",
    # A dict of a subclass is accepted.
    r"(?<=: )dict\[str, Attribute\]": "Mapping[str, Attribute]",
    # Results that the bindings cast to a subclass, which only the program knows, or whose type nanobind does not know.
    r"(?<=\) -> )(?:Attribute|Type|OpView(?: \| Block)?|object)(?=: \.\.\.$)": "Any",
    r"(?<=None\) -> )Attribute \| None": "Any",
    r"(?<=-> list\[)(?:object|tuple\[str, Attribute\]|Attribute)(?=\])": "Any",
    # What is None only where the program knows it to be.
    r"(def parent\(self\) -> Operation|current: Final\[Location) \| None": r"\1 | Any",
    r"(?<=^class OpAttributeMap)": "(Mapping[str, Any])",
    r"(class \w+\(Sequence\[(\w+)\].*\n    )def __getitem__\(self, key, /\): \.\.\.\n": (
        r"\1@overload\n    def __getitem__(self, key: int, /) -> \2: ...\n\n    @overload\n"
        r"    def __getitem__(self, key: slice, /) -> Self: ...\n"
    ),
    r"__len__\(self, /\): ": "__len__(self, /) -> int: ",
    # What can be indexed by integers from 0 can be iterated.
    r"(    def __getitem__\(self, arg: int, /\) -> (int|float|bool): \.\.\.\n)": (
        r"\1\n    def __iter__(self) -> Iterator[\2]: ...\n"
    ),
}
"""Changes of nanobind's stubs: regular expressions, and the replacements of their matches."""


def stub(name: str) -> str:
    """Return the stub of the extension module ``name``. It changes ``torch_mlir``: call it in a process of its own."""
    module = importlib.import_module(f"torch_mlir._mlir_libs.{name}")
    if original := vars(module).pop("_Context", None):
        vars(module)["Context"] = original
    generator = StubGen(module, include_docstrings=False, include_private=True)
    generator.put(module)
    prefix = "" if name == "_mlir.ir" else "ir."
    text = re.sub(r"\b(?:torch_mlir\._mlir_libs\._mlir|torch_mlir|_mlir)\.ir\.", prefix, generator.get())
    for pattern, replacement in CHANGES.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    names = "from collections.abc import Iterator, Mapping\nfrom typing import Any\n"
    return HEADER + names + ("from torch_mlir._mlir_libs._mlir import ir\n" if prefix else "") + text


def main(folder: Path) -> None:
    """Write the stubs to ``folder``."""
    for name, file in MODULES.items():
        path = folder / "_mlir_libs" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stub(name))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2]) if sys.argv[1:] else FOLDER)
