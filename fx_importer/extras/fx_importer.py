"""The names of ``torch_mlir.extras.fx_importer``, for code that is written for it.

torch-mlir's own importer, which is in the wheel, writes the torch dialect here, so that its text, its hooks and its
overridable methods are torch-mlir's. Names that this module does not define are read from torch-mlir's module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch_mlir.extras import fx_importer as torch_mlir_importer

from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.importing import FxImporterHooks
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.mlir.resources import resource
from fx_importer.mlir.tensor_elements import as_array


def __getattr__(name: str) -> Any:
    try:
        return getattr(torch_mlir_importer, name)
    except AttributeError:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(torch_mlir_importer)})


class RefTracker(torch_mlir_importer.RefTracker):
    """torch-mlir's tracker, with a new mapping for a new object at the address of one that ended.

    torch-mlir's returns the mapping of the ended object, and so the values of another tensor.
    """

    def track(self, referrent: Any) -> torch_mlir_importer.RefMapping:
        """Return the mapping of an object."""
        known = self._refs.get(id(referrent))
        if known is not None and referrent is not torch_mlir_importer.Empty and known._referrent() is not referrent:
            del self._refs[id(referrent)]
        return super().track(referrent)


class GraphNodeImporter(torch_mlir_importer.GraphNodeImporter):
    """torch-mlir's importer of nodes, whose literals share the memory of the model's tensors."""

    def _import_literal(self, py_value: Any, info: Any = None) -> ir.Value:
        hooks = type(self.fx_importer._hooks)
        if hooks.resolve_literal is FxImporterHooks.resolve_literal and isinstance(py_value, torch.Tensor):
            _share_memory(py_value, self._cc._py_attr_tracker)
        return super()._import_literal(py_value, info)


def _share_memory(tensor: torch.Tensor, tracker: torch_mlir_importer.RefTracker) -> None:
    """Track ``tensor`` with the attribute that torch-mlir makes of it, without copying its elements.

    torch-mlir makes Python numbers of them. One element is a splat, which torch-mlir makes. It converts bools first.
    """
    if tensor.numel() < 2 or tensor.dtype not in torch_mlir_importer.TORCH_DTYPE_TO_NPY_TYPE:
        return
    if tensor.dtype is torch.bool or tensor.layout is not torch.strided:
        return
    mapping: Any = tracker.track(tensor)
    if mapping.is_empty:
        name = f"torch_tensor_{'_'.join(map(str, tensor.shape))}_{tensor.dtype}"
        kind = torch_mlir_importer.create_mlir_tensor_type(tensor)
        mapping.value = resource(as_array(tensor.detach()), name, kind)


class FxImporter(torch_mlir_importer.FxImporter):
    """torch-mlir's importer. It leaves the program as it is, and makes a context with the dialects that it requires.

    Raises torch-mlir's exceptions: ``NotImplementedError``, ``AssertionError``, ``ValueError``.
    """

    def __init__(
        self,
        *,
        module: ir.Module | None = None,
        context: ir.Context | None = None,
        config_check: bool = True,
        py_attr_tracker: torch_mlir_importer.RefTracker | None = None,
        hooks: Any = None,
        graph_node_importer_cls: type[torch_mlir_importer.GraphNodeImporter] | None = None,
    ):
        used: Any = hooks or FxImporterHooks()
        super().__init__(
            module=module,
            context=context if module is not None else context or new_context(),
            config_check=config_check,
            py_attr_tracker=py_attr_tracker or RefTracker(),
            hooks=used,
            graph_node_importer_cls=graph_node_importer_cls or GraphNodeImporter,
        )

    def import_program(
        self,
        prog: ExportedProgram,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a program whose state may be mutated in place. See torch-mlir's method."""
        return super().import_program(
            _copied(prog),
            func_name=func_name,
            func_visibility=func_visibility,
            import_symbolic_shape_expressions=import_symbolic_shape_expressions,
        )

    def import_frozen_program(
        self,
        prog: ExportedProgram,
        *,
        func_name: str = "main",
        func_visibility: str | None = None,
        import_symbolic_shape_expressions: bool = False,
    ) -> ir.Operation:
        """Import a program whose parameters and buffers are constants. See torch-mlir's method."""
        return super().import_frozen_program(
            _copied(prog),
            func_name=func_name,
            func_visibility=func_visibility,
            import_symbolic_shape_expressions=import_symbolic_shape_expressions,
        )


def _copied(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of ``program``, whose graph torch-mlir's importer changes."""
    return with_rewritten_graphs(program, lambda graph, module: None)
