"""Tensors of lowered programs: weights outside the module, and state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from fx_importer.compiler.compiled import Compiled
from fx_importer.errors import UsageError
from fx_importer.fx_graph.programs import with_tensors
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.tensor_elements import missing_values
from fx_importer.options import Weights
from fx_importer.weights import Source, linked, read_weights

C = TypeVar("C", bound=Compiled)


def held_tensors(compiled: Compiled, names: Collection[str]) -> dict[str, torch.Tensor]:
    """Return the tensors that the programs hold under ``names`` in the state dict, or that were read from files."""
    if not names:
        return {}
    held = {
        name: tensor
        for program in compiled.programs.values()
        for name, tensor in {**program.constants, **program.state_dict}.items()
        if name in names
    }
    return {**held, **{name: each for name, each in compiled.tensors.items() if name in names}}


def weight_values(compiled: Compiled) -> dict[str, torch.Tensor]:
    """Return the weights that the programs hold and the module does not, by name.

    Raises:
        UsageError: listing those without values.
    """
    names = compiled.manifest.weights_by_name
    held = held_tensors(compiled, names)
    if missing := [name for name in names if name not in held]:
        raise UsageError(
            f"the module was read without values for {_some(missing)}: pass weights= to fx_importer.load, or take "
            "Lowered.with_weights(...), of a state dict, a model or a file"
        )
    if empty := {name: problem for name, tensor in held.items() if (problem := missing_values(tensor))}:
        problem = next(iter(empty.values())).removesuffix(", and has no values")
        raise UsageError(
            f"the model has no values for {_some(list(empty))}: it {problem}. Take Lowered.with_weights(...), of a "
            "state dict, a model or a file"
        )
    return held


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def initial_state(compiled: Compiled) -> dict[str, torch.Tensor]:
    """Return the state at export, including weights that functions take as arguments."""
    state = held_tensors(compiled, compiled.manifest.state)
    return {**weight_values(compiled), **state} if compiled.options.importing.weights is Weights.ARGS else state


def linked_module(compiled: Compiled) -> ir.Module:
    """Return the module with the weights of the programs linked into it.

    Raises:
        UsageError: listing those without values.
    """
    if compiled.options.importing.weights is not Weights.EXTERNAL:
        return compiled.module
    return linked(compiled.module, compiled.manifest.weights, weight_values(compiled))


def with_weights(compiled: C, weights: Source) -> C:
    """Return ``compiled`` with other weights in its programs and the same module.

    Raises:
        UsageError: if the weights are in the module; or listing all that do not match.
    """
    if compiled.options.importing.weights is Weights.INLINE:
        raise UsageError("the weights are in the module: lower with weights='external' or 'args' to change them")
    tensors = read_weights(compiled.manifest, weights)
    names = {name: weight.name for weight in compiled.manifest.weights.values() for name in (weight.name, *weight.also)}
    given = {name: tensors[first] for name, first in names.items()}
    return replace(
        compiled,
        tensors=given if compiled.tensors or not compiled.exported else {},
        programs={name: with_tensors(each, given) for name, each in compiled.programs.items()},
        exported={name: with_tensors(each, given) for name, each in compiled.exported.items()},
    )
