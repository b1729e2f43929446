"""Graph modules whose Python code is written and compiled when they are called, and not before.

torch.export compiles the module of each intermediate graph, which takes up to a third of its time, and calls few.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from fx_importer.frontend.torch_patches import RECOMPILE, patched
from fx_importer.fx_graph.programs import with_graph


@contextmanager
def code_deferred() -> Iterator[None]:
    """Defer the code of graph modules that change in the body until they are called."""
    compiled = fx.GraphModule.recompile

    def compile_and_run(module: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        compiled(module)
        return type(module).forward(module, *args, **kwargs)

    def recompile(module: fx.GraphModule) -> None:
        setattr(type(module), "forward", compile_and_run)  # noqa: B010 - each graph module has a class of its own
        structure = getattr(module.graph._codegen, "pytree_info", None)
        if structure is not None:  # what hooks of torch.export read before the call
            module._in_spec, module._out_spec = structure.in_spec, structure.out_spec

    with patched({RECOMPILE: recompile}):
        yield


def with_code(program: ExportedProgram) -> ExportedProgram:
    """Return ``program``, exported in `code_deferred`, with code for its subgraphs; its graph gets it when called."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule) and module is not program.graph_module:
            module.recompile()
    return with_graph(program, program.graph, program.graph_signature)
