"""The import paths of torch-mlir: names, signatures, importers and hooks."""

from __future__ import annotations

import gc
import importlib
import inspect

import pytest
import torch

from fx_importer import ExportError, FxImporterError, UnsupportedProgramError, UsageError
from fx_importer import FxImporter as OwnImporter
from fx_importer.engines import backend_named, default_engine
from fx_importer.errors import AssumptionWarning, ContractWarning, FrozenStateWarning, StageFailed
from fx_importer.mlir.bindings import func_d, ir, new_context
from fx_importer.output_types import OutputType
from testing.drop_in_programs import Of
from testing.op_cases import OUTPUT_TYPES

PATHS = ("fx", "compiler_utils", "extras.fx_importer", "extras.fx_decomp_util")


def modules(path: str):
    """Return our module, imported with warnings as errors, and torch-mlir's."""
    return importlib.import_module(f"fx_importer.{path}"), importlib.import_module(f"torch_mlir.{path}")


def public(module) -> dict[str, object]:
    """Return what torch-mlir's Python code defines; the bindings are in these modules too."""
    defined = {f"torch_mlir.{path}" for path in PATHS}
    return {
        name: value
        for name, value in vars(module).items()
        if not (name.startswith("_") or inspect.ismodule(value))
        and getattr(value, "__module__", module.__name__) in defined
    }


@pytest.mark.parametrize("path", PATHS)
def test_names_and_signatures(path):
    ours, theirs = modules(path)
    for name, value in public(theirs).items():
        assert hasattr(ours, name), name
        if inspect.isfunction(value):
            taken = inspect.signature(getattr(ours, name)).parameters
            for parameter in inspect.signature(value).parameters.values():
                assert taken[parameter.name].kind == parameter.kind, (name, parameter)
                assert str(taken[parameter.name].default).lower().strip("<>") in str(parameter.default).lower()


def fx():
    return modules("fx")[0]


def importers():
    return modules("extras.fx_importer")


def test_errors_and_output_types():
    assert fx().TorchMlirCompilerError is FxImporterError
    module = fx().export_and_import(torch.nn.ReLU(), torch.ones(2), output_type=fx().OutputType["TOSA"])
    assert "tosa.clamp" in str(module)
    assert "fx_importer." not in str(module)
    with pytest.raises(AttributeError, match=r"'fx_importer.extras.fx_importer' has no attribute 'Missing'"):
        _ = importers()[0].Missing
    assert "TORCH_DTYPE_TO_INT" in dir(importers()[0])


def test_profile_of_tosa_is_a_warning():
    with pytest.warns(ContractWarning, match="element type 'f64' is not legal"):
        module = fx().export_and_import(torch.nn.ReLU(), torch.ones(2, dtype=torch.float64), output_type="tosa")
    assert "tensor<2xf64>" in str(module)


def test_frozen_state_is_a_warning():
    def counted(self, x):
        self.count.add_(1)
        return x + self.count

    model = Of(counted, count=torch.zeros(()))
    with pytest.warns(FrozenStateWarning, match="writes to the buffers count, .* experimental_support_mutation=True"):
        text = str(fx().export_and_import(model, torch.ones(2)))
    assert "-> (!torch.vtensor<[],f32>, !torch.vtensor<[2],f32>)" in text
    mutable = str(fx().export_and_import(model, torch.ones(2), experimental_support_mutation=True))
    assert "torch.overwrite.tensor.contents" in mutable
    with pytest.raises(FrozenStateWarning):  # warnings are errors here
        fx().export_and_import(model, torch.ones(2))
    fx().export_and_import(torch.nn.Dropout(), torch.ones(2))  # in training mode


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_frozen_state_is_lowered(output_type):
    def step(self, x):
        x[0] = 5
        self.sums.add_(x)
        return x * self.sums

    model, x = Of(step, sums=torch.ones(3)), torch.arange(3.0)
    with pytest.warns(FrozenStateWarning, match="buffers sums"):
        module = fx().export_and_import(model, x, output_type=output_type)
    engine = default_engine(OutputType.get(output_type))
    assert engine is not None
    results = backend_named(engine.name).load(module)(x.clone())
    result = model(written := x.clone())
    torch.testing.assert_close(tuple(results), (model.sums, written, result))


def test_what_torch_mlir_refuses_is_lowered_by_us():
    def branches(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    for output_type in ("raw", "torch"):
        assert "torch.prim.If" in str(fx().export_and_import(Of(branches), torch.ones(2), output_type=output_type))
    with pytest.raises(UsageError, match="`size` must be a static int list"):
        fx().export_and_import(
            Of(lambda x: x.as_strided((x.shape[0], 1), (1, 1))),
            torch.ones(4),
            dynamic_shapes={"args": ({0: torch.export.Dim("n")},)},
        )


def test_strides_of_a_decomposition_are_no_refusal():
    shapes = {"input": {0: torch.export.Dim("n")}}
    module = fx().export_and_import(torch.nn.GroupNorm(2, 4), torch.ones(3, 4, 5), dynamic_shapes=shapes)
    assert "!torch.vtensor<[?,4,5],f32>" in str(module)


def test_options_of_ours_and_importers():
    model, x = torch.nn.Linear(2, 3), torch.ones(1, 2)
    assert "dense_resource<weight>" in str(fx().export_and_import(model, x, mutation="functional"))
    assert "dense_resource<weight>" in str(fx().export_and_import(model, x, fx_importer=OwnImporter()))
    lowered = fx().export_and_import(model, x, fx_importer=fx().FxImporter(), output_type="linalg-on-tensors")
    assert "linalg.matmul" in str(lowered)
    graph = torch.export.export(torch.nn.ReLU(), (x,)).graph_module
    for output_type, operation in (("raw", "torch.aten.relu"), ("torch", "torch.aten.relu"), ("tosa", "tosa.clamp")):
        assert operation in str(fx().stateless_fx_import(graph, output_type, model_name="relu"))


def test_backend_form_is_lowered():
    module = fx().export_and_import(torch.nn.Linear(2, 3), torch.ones(1, 2), output_type="torch")
    utils = modules("compiler_utils")[0]
    options = utils.BackendLoweringOptions(allow_non_finites=False)
    assert "linalg.matmul" in str(utils.lower_mlir_module(False, "linalg-on-tensors", module, options))
    assert utils.TensorPlaceholder.like(torch.ones(2, 3), [0]).shape == [-1, 3]


def test_verbose(capsys):
    fx().export_and_import(torch.nn.ReLU(), torch.ones(2), verbose=True, enable_graph_printing=True)
    printed = capsys.readouterr().out
    assert "class GraphModule" in printed
    assert "====================\nTorchFX IR\nmodule {" in printed


def test_register_canonicalize():
    extras, theirs = importers()
    before = dict(theirs.NODE_CANONICALIZE)

    @extras.register_canonicalize(torch.ops.aten.relu.default)
    def gelu_tanh(node):
        node.target, node.kwargs = torch.ops.aten.gelu.default, {"approximate": "tanh"}
        return node

    try:
        program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
        importer = extras.FxImporter()
        function = importer.import_frozen_program(program)
        assert isinstance(function, func_d.FuncOp)
        assert "torch.aten.gelu" in str(function)
        assert "aten.relu" in str(program.graph)
        assert isinstance(importer.import_program(program, func_name="again"), func_d.FuncOp)
    finally:
        theirs.NODE_CANONICALIZE.clear()
        theirs.NODE_CANONICALIZE.update(before)


def test_programs_of_integrators():
    """What tt-torch and iree-turbine do with an importer."""
    extras, _ = importers()

    class NameOfNode(extras.ContextCache):
        def get_node_location(self, node):
            return ir.Location.name(f"node {node.name}", context=self._c)

    class Dense(extras.FxImporterHooks):
        def resolve_literal(self, gni, literal, info):
            array = literal.detach().numpy().astype(extras.TORCH_DTYPE_TO_NPY_TYPE[literal.dtype])
            element = extras.TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
            value = ir.DenseElementsAttr.get(array, shape=array.shape, type=element)
            type_ = gni._cc.tensor_to_vtensor_type(literal)
            return ir.Operation.create("torch.vtensor.literal", [type_], attributes={"value": value}).result

    class Counting(extras.GraphNodeImporter):
        nodes = 0

        def _import_torch_op_overload(self, loc, node, concrete_target=None):
            Counting.nodes += 1
            return super()._import_torch_op_overload(loc, node, concrete_target)

    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    importer = extras.FxImporter(context=new_context(), hooks=Dense(), graph_node_importer_cls=Counting)
    importer._cc = NameOfNode(importer._c, py_attr_tracker=importer._py_attr_tracker)
    importer.import_frozen_program(program)
    text = importer.module.operation.get_asm(enable_debug_info=True)
    assert Counting.nodes == 1
    assert 'loc("node linear")' in text
    assert "dense<" in text
    assert "dense_resource" not in text

    class Module:  # that of iree-turbine, around a module's operation
        operation, context, body = importer.module.operation, importer.module.context, importer.module.body

    tracker = extras.RefTracker()
    second = extras.FxImporter(module=Module(), config_check=False, py_attr_tracker=tracker, hooks=Dense())
    function = second.import_frozen_program(program, func_name="other", func_visibility="private")
    assert second._py_attr_tracker is tracker
    assert function.attributes["sym_visibility"] == ir.StringAttr.get("private", second.module.context)
    assert "@main" in str(second.module_op)


def test_errors_of_hooks_are_their_own():
    class Failing(fx().FxImporterHooks):
        def resolve_literal(self, gni, literal, info):
            raise LookupError("of the hook")

    with pytest.raises(LookupError, match="of the hook"):
        fx().export_and_import(torch.nn.Linear(2, 2), torch.ones(1, 2), hooks=Failing())


def test_literals_share_the_memory_of_the_model():
    weight = torch.zeros(300)
    module = fx().export_and_import(Of(lambda self, x: x + self.w, w=weight), torch.ones(300))
    weight[0] = 1
    assert '"0x040000000000803F00' in str(module)


def test_references_are_tracked_by_identity():
    tracker = importers()[0].RefTracker()
    tensor = torch.ones(2)
    tracker.track(tensor).value = 1
    assert tracker.track(tensor).value == 1
    assert tracker.track(torch.ones(2)).is_empty
    address = id(tensor)
    other = torch.ones(2)
    tracker._refs[id(other)] = tracker._refs[address]
    del tensor
    gc.collect()
    assert tracker.track(other).is_empty


def test_crashes_of_torch_mlirs_pipeline_are_avoided():
    program = torch.export.export(Of(lambda x: x.nonzero()), (torch.tensor(2.0),))
    assert "-> !torch.vtensor<[?,0],si64>" in str(fx().export_and_import(program, output_type="torch"))
    with pytest.raises(UnsupportedProgramError, match=r"aten.nonzero: its tensor has rank 0: .*, at .*\.py:\d+"):
        fx().export_and_import(program, output_type="torch", fx_importer=fx().FxImporter())


def test_failures_are_reported():
    custom = Of(torch.ops.drop_in.twice)
    assert '"torch.drop_in.twice"' in str(fx().export_and_import(custom, torch.ones(2), output_type="torch"))
    with pytest.raises(StageFailed, match=r"failed to legalize operation 'torch.operator'"):
        fx().export_and_import(custom, torch.ones(2), output_type="torch", fx_importer=fx().FxImporter())


@pytest.mark.parametrize("output_type", ["raw", "torch", "stablehlo"])
def test_branches_on_values_are_refused_as_in_torch_mlir(output_type):
    def forward(x):
        return x * 2 if x.sum() > 0 else x * 3

    with pytest.raises(ExportError, match="data-dependent"):
        fx().export_and_import(forward, torch.ones(3), output_type=output_type)
    with pytest.warns(AssumptionWarning, match="under 1 assumption"):
        fx().export_and_import(forward, torch.ones(3), output_type=output_type, capture="auto")
