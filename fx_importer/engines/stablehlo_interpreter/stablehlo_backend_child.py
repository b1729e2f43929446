"""The child process of the StableHLO interpreter. To start fast, it imports neither torch nor this package."""

import json
from pathlib import Path

import numpy as np
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo


def interpret(module: str, request: str, folder: str) -> None:
    """Run the function of the bytecode ``module``.

    ``request`` is a JSON file with ``[file, dtype, shape]`` for each argument: the path of its bytes, the dtype for
    numpy to read them, and the shape. The results are written to ``folder`` as ``0.npy``, ``1.npy`` and so on.
    """
    context = ir.Context()
    _stablehlo.register_dialect(context)
    with context, ir.Location.unknown():
        parsed = ir.Module.parseFile(module)
        types = ir.FunctionType(ir.TypeAttr(parsed.body.operations[0].attributes["function_type"]).value).inputs
        arguments = [
            ir.DenseElementsAttr.get(
                np.fromfile(file, dtype=dtype), type=ir.RankedTensorType(type_).element_type, shape=shape
            )
            for type_, (file, dtype, shape) in zip(types, json.loads(Path(request).read_text()), strict=True)
        ]
        results = _stablehlo.eval_module(parsed, arguments)
        for number, result in enumerate(results):
            np.save(Path(folder, f"{number}.npy"), np.array(ir.DenseElementsAttr(result)))
