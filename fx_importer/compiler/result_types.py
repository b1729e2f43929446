"""Comparison of the result types of a lowered module with the symbolic sizes of its programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy
from torch import SymInt, Tensor, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import fake_mode_of
from fx_importer.importing.program_results import is_known, results_of
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.types import TorchTensor

_TRIED = (2, 3, 5, 8, 13, 64)
"""Sizes to tell with whether an expression is constant, as far as they are in the ranges of its symbols."""


def check_result_types(programs: Mapping[str, ExportedProgram], module: ir.Module) -> None:
    """Check that no function of ``module`` has a size in its results that its program does not have.

    A static size is the program's, or that of a symbolic one for all sizes of the inputs. Functions with other results
    than their program, such as those that overwrite state, are not compared.

    Raises:
        UnsupportedProgramError: naming the operators that the sizes come from.
    """
    functions = functions_of(module)
    wrong = [
        violation
        for name, program in programs.items()
        if name in functions
        for violation in _violations(program, list(functions[name].type.results))
    ]
    if wrong:
        things = "1 result has" if len(wrong) == 1 else f"{len(wrong)} results have"
        raise UnsupportedProgramError(f"{things} another size in the lowered module than in the program:", wrong)


def _violations(program: ExportedProgram, types: list[ir.Type]) -> Iterator[UnsupportedNode]:
    nodes = [value for value, _ in results_of(program, []) if isinstance(value, fx.Node) and not is_known(value)]
    if len(nodes) != len(types):
        return
    for node, type_ in zip(nodes, types, strict=True):
        value, sizes = node.meta.get("val"), _sizes(type_)
        if not isinstance(value, Tensor) or sizes is None or len(sizes) != value.dim():
            continue
        for axis, (size, lowered) in enumerate(zip(value.shape, sizes, strict=True)):
            if lowered is not None and not _may_be(size, lowered, program):
                origin = _origin(size, program) or node
                yield unsupported_node_at(
                    origin,
                    f"{origin.name} = {origin.target}",
                    f"size {axis} of the result is {size} in the program, and {lowered} in the lowered module",
                )


def _sizes(type_: ir.Type) -> tuple[int | None, ...] | None:
    """Return the sizes of a tensor type of any dialect, None for a dynamic one; None for other types."""
    if (tensor := TorchTensor.read(type_)) is not None:
        return tensor.shape
    if not isinstance(type_, ir.RankedTensorType):
        return None
    return tuple(None if type_.is_dynamic_dim(axis) else type_.get_dim_size(axis) for axis in range(type_.rank))


def _may_be(size: int | SymInt, lowered: int, program: ExportedProgram) -> bool:
    """Return whether ``size`` is ``lowered`` for all inputs."""
    if not isinstance(size, SymInt):
        return size == lowered
    expression: sympy.Expr = size.node.expr
    if free_unbacked_symbols(expression):  # sizes that constants determine are numbers by now
        return not _depends_on_inputs(_origin(size, program), program)
    ranges = getattr(getattr(fake_mode_of(program.graph), "shape_env", None), "var_to_range", {})
    for offset in range(len(_TRIED)):
        values: dict[Any, int] = {}
        for number, symbol in enumerate(sorted(expression.free_symbols, key=str)):
            found, tried = ranges.get(symbol), _TRIED[(offset + number) % len(_TRIED)]
            within = found is None or bool(found.lower <= tried <= found.upper)
            values[symbol] = tried if found is None or within else int(found.lower)
        if expression.subs(values) != lowered:
            return False
    return True


def _origin(size: int | SymInt, program: ExportedProgram) -> fx.Node | None:
    """Return the first operator whose result has a symbol of ``size``; None for a size that is a number."""
    symbols = size.node.expr.free_symbols if isinstance(size, SymInt) else set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, Tensor) else (value,)
        here: set[Any] = set().union(*(each.node.expr.free_symbols for each in sizes if isinstance(each, SymInt)))
        if node.op == "call_function" and isinstance(value, Tensor) and symbols & here:
            return node
    return None


def _depends_on_inputs(node: fx.Node | None, program: ExportedProgram) -> bool:
    """Return whether ``node`` is computed from the values of an input, and not of its sizes alone."""
    inputs = frozenset(program.graph_signature.user_inputs)
    seen: set[fx.Node] = set()
    waiting = [] if node is None else [node]
    while waiting:
        node = waiting.pop()
        if node not in seen and node.target is not aten.sym_size.int:
            seen.add(node)
            waiting += node.all_input_nodes
    return any(node.op == "placeholder" and node.name in inputs for node in seen)
