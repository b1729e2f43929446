"""Programs and modules in reports: with weights if they are small, else without."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.frontend.torch_patches import tracing, warnings_filtered
from fx_importer.mlir.bindings import ir, write_bytecode
from fx_importer.mlir.output_files import file_for_torch
from fx_importer.mlir.resources import byte_size, constants_in, elided_resource, is_resource, replace_constants

WEIGHTS_LIMIT = 16 * 2**20
"""Largest total size of weights kept in a report, for a program and for a module."""
_SMALL = 1024
"""Smaller constants, which may be shapes, are always kept."""
READABLE_LIMIT = 4_000_000
"""Largest number of characters of a module as text."""


@tracing()
def save_program(program: ExportedProgram, path: Path) -> str:
    """Write ``program`` to ``path`` with `torch.export.save`. Return a sentence about its weights.

    Weights of more than `WEIGHTS_LIMIT` bytes are replaced by zeros, which take no space.

    Raises:
        Exception: of any type, if torch cannot serialize the program.
    """
    size = sum(0 if tensor.is_meta else tensor.numel() * tensor.itemsize for tensor in _tensors(program))
    if size <= WEIGHTS_LIMIT:
        _save(program, path)
        return f"`{path.name}` is the exported program with its weights: check before sharing."
    with warnings_filtered("ignore", "No complete tensor found"):  # zeros are expanded scalars
        _save(_with_zeros(program), path)
    return f"`{path.name}` is the exported program, with zeros for its weights and example inputs ({size:,} bytes)."


def _tensors(program: ExportedProgram) -> list[torch.Tensor]:
    tree = (program.state_dict, program.constants, program.example_inputs)
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _save(program: ExportedProgram, path: Path) -> None:
    with file_for_torch(path) as file:
        torch.export.save(program, file)


def _with_zeros(program: ExportedProgram) -> ExportedProgram:
    made: dict[int, torch.Tensor] = {}

    def zero(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor
        if id(tensor) not in made:  # keep tensor identity
            zeros = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
            made[id(tensor)] = torch.nn.Parameter(zeros, False) if isinstance(tensor, torch.nn.Parameter) else zeros
        return made[id(tensor)]

    bare = copy.copy(program)
    bare._state_dict = {name: zero(tensor) for name, tensor in program.state_dict.items()}
    bare._constants = {name: zero(constant) for name, constant in program.constants.items()}
    bare._example_inputs = pytree.tree_map(zero, program.example_inputs)
    return bare


def save_bytecode(module: ir.Operation, path: Path, *, external: bool = False) -> str:
    """Write ``module``, which is not changed, as bytecode. Return a sentence about its weights.

    Weights of more than `WEIGHTS_LIMIT` bytes are elided: each is a ``dense_resource`` without data, as ``external``
    weights are already.
    """
    size = sum(map(byte_size, {value for _, _, value in constants_in(module)}))
    if external:
        messages = "without its weights, which are external: it fails without them."
    elif size > WEIGHTS_LIMIT:
        module = _without_weights(module)
        messages = f"without the data of its weights ({size:,} bytes): passes that read weights see none."
    else:
        messages = "with its weights: check before sharing."
    write_bytecode(module, path)
    return f"`{path.name}` is the module before the stage, {messages}"


def _without_weights(module: ir.Operation) -> ir.Operation:
    bare = module.clone()

    def elided(value: ir.Attribute) -> ir.Attribute | None:
        if byte_size(value) < _SMALL:
            return None
        kind = ir.DenseResourceElementsAttr(value).type if is_resource(value) else value.type
        return elided_resource("left-out", kind)

    replace_constants(constants_in(bare), elided)
    return bare


def readable(module: ir.Operation) -> str:
    """Return ``module`` as text with locations and elided weights, truncated to `READABLE_LIMIT`."""
    # Local scope omits the resource section, which would print all weights as hexadecimal digits.
    text = module.get_asm(use_local_scope=True, large_elements_limit=16, enable_debug_info=True)
    if len(text) <= READABLE_LIMIT:
        return text
    kept = text[: text.rindex("\n", 0, READABLE_LIMIT)]
    return f"{kept}\n// truncated: {len(text) - len(kept):,} more characters\n"
