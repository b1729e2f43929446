"""The import paths of torch-mlir, which warn."""

from __future__ import annotations

import gc
import importlib
import math
import sys

import pytest
import sympy
import torch

from fx_importer import (
    FxImporter,
    FxImporterError,
    FxImporterHooks,
    NodeBuilder,
    UnsupportedProgramError,
    UsageError,
    lower,
)
from fx_importer.mlir.bindings import ir, new_context


def imported(name: str, replacement: str):
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=replacement):
        return importlib.import_module(name)


def test_fx():
    fx = imported("fx_importer.fx", "imports them from fx_importer")
    assert fx.TorchMlirCompilerError is FxImporterError
    module = fx.export_and_import(torch.nn.ReLU(), torch.ones(2), output_type=fx.OutputType["TOSA"])
    assert "tosa.clamp" in str(module)


def test_extras():
    extras = imported("fx_importer.extras.fx_importer", "NodeBuilder .GraphNodeImporter. from fx_importer")
    assert extras.GraphNodeImporter is NodeBuilder
    with pytest.raises(UsageError, match="a strided tensor"):
        extras.sparsity_encoding(torch.ones(2))
    assert "compressed" in extras.sparsity_encoding(torch.eye(2).to_sparse())
    n, m = sympy.symbols("n m", integer=True)
    with new_context():
        types = {dtype: str(make()) for dtype, make in extras.TORCH_DTYPE_TO_MLIR_TYPE.items()}
        assert types == extras.TORCH_DTYPE_TO_MLIR_TYPE_ASM
        names = {"n": ir.AffineSymbolExpr.get(0), "m": ir.AffineSymbolExpr.get(1)}
        assert str(extras.sympy_expr_to_semi_affine_expr(2 * n + m, names)) == "s1 + s0 * 2"
        with pytest.raises(UsageError, match="is no affine expression"):
            extras.sympy_expr_to_semi_affine_expr(n * m, names)


def test_register_canonicalize():
    extras = imported("fx_importer.extras.fx_importer", "NodeBuilder")

    @extras.register_canonicalize(torch.ops.aten.relu.default)
    def gelu_tanh(node):
        node.target, node.kwargs = torch.ops.aten.gelu.default, {"approximate": "tanh"}
        return node

    @extras.register_canonicalize(torch.ops.aten.abs.default)
    def lost(node):
        return None

    @extras.register_canonicalize(torch.ops.aten.cos.default)
    def python_function(node):
        node.target = math.cos
        return node

    def exported(function):
        return lower(function, torch.ones(2), output_type="raw").exported_program

    importer = extras.FxImporter()
    program = exported(torch.relu)
    assert "torch.aten.gelu" in str(importer.import_frozen_program(program))
    assert "aten.relu" in str(program.graph)
    assert "torch.aten.relu" in str(FxImporter().import_frozen_program(program))
    with pytest.raises(UnsupportedProgramError, match="cos is not an operator that can be imported"):
        importer.import_frozen_program(exported(torch.cos))
    program = exported(lambda x: -x.abs())
    with pytest.raises(UnsupportedProgramError, match="lost leaves it out, but neg uses it"):
        importer.import_frozen_program(program)
    x, absolute, negative, _ = program.graph.nodes
    negative.replace_input_with(absolute, x)
    assert "aten.abs" not in str(importer.import_frozen_program(program))


def test_programs_of_integrators():
    """What tt-torch and iree-turbine do with an importer."""
    extras = imported("fx_importer.extras.fx_importer", "NodeBuilder")

    class NameOfNode(extras.ContextCache):
        def get_node_location(self, node):
            return ir.Location.name(f"node {node.name}", context=self._c)

    class Dense(FxImporterHooks):
        def resolve_literal(self, gni, literal, info):
            array = literal.detach().numpy().astype(extras.TORCH_DTYPE_TO_NPY_TYPE[literal.dtype])
            element = extras.TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
            value = ir.DenseElementsAttr.get(array, shape=array.shape, type=element)
            type_ = gni._cc.tensor_to_vtensor_type(literal)
            return ir.Operation.create("torch.vtensor.literal", [type_], attributes={"value": value}).result

    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    importer = extras.FxImporter(context=new_context(), hooks=Dense())
    importer._cc = NameOfNode(importer._c, py_attr_tracker=importer._py_attr_tracker)
    importer.import_frozen_program(program)
    text = importer.module.operation.get_asm(enable_debug_info=True)
    assert 'loc("node linear")' in text
    assert "dense<" in text
    assert "dense_resource" not in text

    class Module:  # that of iree-turbine, around a module's operation
        operation, context, body = importer.module.operation, importer.context, importer.module.body

    tracker = extras.RefTracker()
    second = extras.FxImporter(module=Module(), config_check=False, py_attr_tracker=tracker, hooks=Dense())
    function = second.import_frozen_program(program, func_name="other", func_visibility="private")
    assert second._py_attr_tracker is tracker
    assert function.attributes["sym_visibility"] == ir.StringAttr.get("private", importer.context)
    assert "@main" in str(second.module_op)
    with pytest.raises(UsageError, match="graph_node_importer_cls= is not supported"):
        extras.FxImporter(graph_node_importer_cls=dict)


def test_references_are_tracked_by_identity():
    tracker = importlib.import_module("fx_importer.extras.fx_importer").RefTracker()
    tensor = torch.ones(2)
    tracker.track(tensor).value = 1
    assert tracker.track(tensor).value == 1
    assert tracker.track(torch.ones(2)).is_empty
    address = id(tensor)
    del tensor
    gc.collect()
    assert tracker._known[address][0]() is None
