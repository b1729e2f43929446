"""Results of an exported program for other sizes than it was exported with, compared with those of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from fx_importer.diagnostics.assumption_messages import violation_in
from fx_importer.errors import ExportError
from fx_importer.frontend.example_inputs import state_of
from fx_importer.frontend.fake_weights import is_fake_or_meta
from fx_importer.frontend.undo_writes import attributes_restored
from fx_importer.fx_graph.assumptions import assumption_texts

_TOLERANCE = 1e-4


class EagerModel:
    """A model with its example inputs, which are cut to the sizes to compare."""

    def __init__(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]):
        self._module = module
        self._leaves, self._structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._exported: tuple[ExportedProgram, torch.nn.Module] | None = None

    def differs(self, program: ExportedProgram, environment: ShapeEnv, sizes: Mapping[Any, Any]) -> bool:
        """Return whether results of ``program`` differ from the model's for ``sizes``; also if one of them fails.

        The inputs are the example's, and random numbers in place of floating-point ones.
        """
        try:
            shapes = self._shapes(program, environment, sizes)
            if self._exported is None or self._exported[0] is not program:
                self._exported = program, program.module(check_guards=False)
            return not all(self._agree(self._exported[1], shapes, random) for random in (False, True))
        except Exception:  # the model or the program refuses the sizes, or has no data
            return True

    def _shapes(self, program: ExportedProgram, environment: ShapeEnv, sizes: Mapping[Any, Any]) -> list[list[int]]:
        """Return the shape of each tensor among the inputs."""
        nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        values = [nodes[name].meta["val"] for name in program.graph_signature.user_inputs if name in nodes]
        shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
        return [
            [
                size if isinstance(size, int) else int(environment.replace(size.node.expr).xreplace(dict(sizes)))
                for size in shape
            ]
            for shape in shapes
        ]

    def _agree(self, exported: torch.nn.Module, shapes: list[list[int]], random: bool) -> bool:
        results = []
        for module in (self._module, exported):
            args, kwargs = self._inputs(shapes, random)
            buffers = {name: buffer.clone() for name, buffer in torch.nn.Module.named_buffers(module)}
            with torch.random.fork_rng(devices=()), attributes_restored(module):
                torch.manual_seed(0)
                results.append(pytree.tree_leaves(torch.func.functional_call(module, buffers, args, kwargs)))
        model, program = results
        return len(model) == len(program) and all(map(_is_close, model, program))

    def _inputs(self, shapes: list[list[int]], random: bool) -> Any:
        remaining = iter(shapes)
        generator = torch.Generator().manual_seed(0)

        def cut(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            for axis, size in enumerate(next(remaining)):
                leaf = leaf.narrow(axis, 0, size)
            if random and leaf.is_floating_point():
                return torch.randn(leaf.shape, generator=generator).to(leaf.dtype)
            return leaf.detach().clone()

        return pytree.tree_unflatten([cut(leaf) for leaf in self._leaves], self._structure)


def _is_close(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return not isinstance(b, torch.Tensor) and bool(a == b)
    if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.allclose(a, b, _TOLERANCE, _TOLERANCE, equal_nan=True)


def cannot_compare(program: ExportedProgram, environment: ShapeEnv, sizes: Mapping[Any, Any]) -> bool:
    """Return True: without its model, nothing is known of the results of ``program``."""
    return True


def check_assumptions(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `ExportError` if an assumption of ``program`` is false for the inputs that it was captured with.

    Programs that draw random numbers, and those whose weights have no values, are not evaluated; a program with an
    operator that has no kernel for the CPU is, up to that operator.
    """
    leaves = pytree.tree_leaves((args, kwargs, program.state_dict, program.constants))
    if not assumption_texts({"main": program}) or any(map(is_fake_or_meta, leaves)) or _is_random(program):
        return
    copies = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), (tuple(args), dict(kwargs)))
    module = program.module(check_guards=False)
    # The program may write to its state.
    state = {name: tensor.detach().clone() for name, tensor in state_of(module).items()}
    try:
        with torch.no_grad():
            torch.func.functional_call(module, state, *copies)
    except RuntimeError as error:  # others, `NotImplementedError` too: an operator has no kernel for the CPU
        if (violation := violation_in(str(error), "main")) is not None:
            raise ExportError(
                f"the program cannot check what its capture assumes: {violation.assumption} for the example inputs "
                f"while it was traced, and not when the program runs with them"
            ) from error


def _is_random(program: ExportedProgram) -> bool:
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for module in program.graph_module.modules()
        for node in (module.graph.nodes if isinstance(module, fx.GraphModule) else ())
    )
