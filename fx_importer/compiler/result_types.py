"""Comparison of the result types of a lowered module with the symbolic sizes of its programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, fx
from torch.export import ExportedProgram

from fx_importer.diagnostics.mlir_diagnostics import unsupported_node_at
from fx_importer.errors import UnsupportedNode, UnsupportedProgramError
from fx_importer.fx_graph.result_types import may_be, origin_of_size
from fx_importer.importing.signatures.program_signature import is_known, results_of
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.functions import functions_of
from fx_importer.mlir.types import TorchTensor


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
            if lowered is not None and not may_be(size, lowered, program):
                origin = origin_of_size(size, program) or node
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
