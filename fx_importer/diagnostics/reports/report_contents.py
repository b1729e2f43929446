"""What a report keeps of a program and of a module: all of a small one, all but the weights of a large one."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.resources import byte_size, constants_in, elided_resource, is_resource, replace_constants

WEIGHTS_LIMIT = 16 * 2**20
"""Bytes of weights that a report keeps of a program, and again of a module."""
_SMALL = 1024
"""Bytes. A smaller constant may be a shape, and is no weight."""
READABLE_LIMIT = 4_000_000
"""Characters of a module as text."""


def save_program(program: ExportedProgram, path: Path) -> str:
    """Write ``program`` to ``path``, as `torch.export.save` does. Return a sentence about its weights.

    More than `WEIGHTS_LIMIT` of them are zeros there, which take no space.

    Raises:
        Exception: of any kind, where torch cannot serialise the program.
    """
    size = sum(_bytes(each) for each in _tensors(program))
    if size <= WEIGHTS_LIMIT:
        torch.export.save(program, path)
        return f"`{path.name}` is the program as it was exported, weights included: look before you send it to anybody."
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No complete tensor found")  # each zero is one number, repeated
        torch.export.save(_with_zeros(program), path)
    return (
        f"`{path.name}` is the program as it was exported, with zeros for its weights and example inputs, which are "
        f"{size:,} bytes."
    )


def _tensors(program: ExportedProgram) -> list[torch.Tensor]:
    held = (program.state_dict, program.constants, program.example_inputs)
    return [each for each in pytree.tree_leaves(held) if isinstance(each, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_meta else tensor.numel() * tensor.itemsize


def _with_zeros(program: ExportedProgram) -> ExportedProgram:
    made: dict[int, torch.Tensor] = {}

    def zero(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor
        if id(tensor) not in made:  # what is one tensor stays one
            zeros = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
            made[id(tensor)] = torch.nn.Parameter(zeros, False) if isinstance(tensor, torch.nn.Parameter) else zeros
        return made[id(tensor)]

    bare = copy.copy(program)
    bare._state_dict = {name: zero(each) for name, each in program.state_dict.items()}
    bare._constants = {name: zero(each) for name, each in program.constants.items()}
    bare._example_inputs = pytree.tree_map(zero, program.example_inputs)
    return bare


def save_bytecode(module: ir.Operation, path: Path, *, external: bool = False) -> str:
    """Write ``module``, which stays as it is, as bytecode. Return a sentence about its weights.

    More than `WEIGHTS_LIMIT` of them are left out: each is a ``dense_resource`` without bytes there. With ``external``
    weights they are that already.
    """
    size = sum(map(byte_size, {value for _, _, value in constants_in(module)}))
    if external:
        said = "without its weights, which are elsewhere: it fails without them."
    elif size > WEIGHTS_LIMIT:
        module = _without_weights(module)
        said = f"without the bytes of its weights, which are {size:,}: passes that look into weights see none."
    else:
        said = "weights included: look before you send it to anybody."
    with path.open("wb") as file:  # LLVM's own file ends the process where the disk is full
        module.write_bytecode(file)
    return f"`{path.name}` is the module before the stage, {said}"


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
    """Return ``module`` as text with locations, weights elided, and cut where it is very long."""
    # Local scope leaves out the resource section: without it every weight would be turned into hexadecimal digits.
    text = module.get_asm(use_local_scope=True, large_elements_limit=16, enable_debug_info=True)
    if len(text) <= READABLE_LIMIT:
        return text
    kept = text[: text.rindex("\n", 0, READABLE_LIMIT)]
    return f"{kept}\n// cut here, {len(text) - len(kept):,} characters short\n"
