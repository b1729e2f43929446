"""Runtimes that are measured for comparison: ONNX Runtime and OpenVINO, of the model that torch.onnx exports.

Both are of the extra ``rivals``. They compute in the precision of the model, on the threads of PyTorch.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from fx_importer.errors import UsageError
from fx_importer.fx_graph.aliasing import mutated_placeholders
from fx_importer.options import ExportOptions
from fx_importer.process.optional_packages import require
from fx_importer.process.scratch import Scratch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from fx_importer.benchmarking.engines import Example

_EXPORTER = ("onnx", "onnxscript")
"""The packages that torch.onnx needs."""


def onnx_runtime_is_there() -> None:
    """Raise `NotInstalledError` unless ONNX Runtime is installed."""
    require("onnxruntime", "rivals", "onnxruntime", *_EXPORTER)


def onnx_runtime(example: Example) -> Callable[..., Any]:
    """Load the model into a session of ONNX Runtime, with all of its optimizations."""
    runtime, exported = importlib.import_module("onnxruntime"), _Exported(example, "onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(exported.file, options, providers=["CPUExecutionProvider"])
    inputs = [input_.name for input_ in session.get_inputs()]

    def call(*args: Any, **kwargs: Any) -> Any:
        return _tensors(session.run(None, exported.arrays(inputs, args, kwargs)))

    return call


def openvino_is_there() -> None:
    """Raise `NotInstalledError` unless OpenVINO is installed."""
    require("openvino", "rivals", "openvino", *_EXPORTER)


def openvino(example: Example) -> Callable[..., Any]:
    """Compile the model with OpenVINO for this processor."""
    core, exported = importlib.import_module("openvino").Core(), _Exported(example, "openvino")
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "EXECUTION_MODE_HINT": "ACCURACY",  # float32 stays float32 on processors that are faster with bfloat16
    }
    compiled = core.compile_model(exported.file, "CPU", settings)
    inputs = [input_.any_name for input_ in compiled.inputs]

    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = compiled(exported.arrays(inputs, args, kwargs))
        return _tensors(outputs[i] for i in range(len(compiled.outputs)))

    return call


class _Exported:
    """A file of ONNX, and the names of the model's inputs.

    Raises:
        UsageError: if a call writes to inputs or buffers, which functions of ONNX do not.
    """

    def __init__(self, example: Example, rival: str):
        from fx_importer.frontend.export import export_program  # here: other engines load without torch.export

        program = export_program(example.model, example.args, example.kwargs, ExportOptions(), dynamic=False)
        _check_pure(program, rival)
        self._names = program.graph_signature.user_inputs
        self._scratch = Scratch()  # weights are mapped
        self.file = str(self._scratch.path / "model.onnx")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that the model does not use
        exported = torch.onnx.export(program, dynamo=True, verbose=False)
        assert exported is not None
        exported.save(Path(self.file), external_data=True)

    def arrays(self, names: list[str], args: Any, kwargs: Any) -> dict[str, Any]:
        """Return the inputs of a call that ONNX kept, by name."""
        tensors = dict(zip(self._names, pytree.tree_leaves((args, kwargs)), strict=True))
        return {name: tensors[name].numpy() for name in names}


def _check_pure(program: ExportedProgram, rival: str) -> None:
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    names = {spec.arg.name: spec.target for spec in signature.input_specs}
    if written := [*written, *(names[node] or node for node, _ in mutated_placeholders(program.graph))]:
        raise UsageError(f"{rival} runs functions without state, and a call of this model writes to {written[0]}")


def _tensors(arrays: Any) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]
