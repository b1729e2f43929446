"""The public functions: accepted arguments, errors, and side effects."""

import inspect
import shutil
import tempfile
import warnings

import pytest
import torch

import fx_importer
from fx_importer import (
    ExportError,
    FxImporter,
    FxImporterHooks,
    OutputType,
    UnsupportedProgramError,
    UsageError,
    explain,
    export_and_import,
    lower,
    stateless_fx_import,
)
from fx_importer.api.keywords import options_of
from fx_importer.engines import JitBackend
from fx_importer.errors import MisspeltOptionWarning
from fx_importer.frontend.export import FunctionModule
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.options import KEYWORDS, LoweringOptions, Options

X = torch.arange(6.0).reshape(2, 3)


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x, scale=2.0):
        return self.linear(x).relu() * scale


def test_keywords_are_compatible_with_torch_mlir():
    from torch_mlir import fx as peer

    for name, theirs in inspect.signature(peer.export_and_import).parameters.items():
        if theirs.kind is theirs.KEYWORD_ONLY:
            assert name in KEYWORDS
            assert name == "output_type" or options_of({name: theirs.default}) == Options(), name
    assert options_of({}) == Options()
    assert Options().output_type is OutputType.RAW


def test_options_are_equivalent_to_keywords():
    options = Options(output_type=OutputType.TOSA, lowering=LoweringOptions(narrow_integers=True))
    by_options = lower(Affine(), X, options=options)
    by_keywords = lower(by_options.exported["main"], output_type="tosa", narrow_integers=True)
    assert by_options.options == by_keywords.options
    assert str(by_options.module) == str(by_keywords.module)


def test_keyword_beside_options_is_an_error():
    with pytest.raises(UsageError, match="'output_type', 'weights' are passed with it"):
        lower(Affine(), X, options=Options(), output_type="raw", weights="inline")
    with pytest.raises(UsageError, match=r"of type str: pass fx_importer.options.Options"):
        lower(Affine(), X, options="tosa")  # pyright: ignore[reportArgumentType]
    assert "5.000000e+00" in str(lower(Affine(), X, options=Options(), kwargs={"scale": 5.0}).module)


@pytest.mark.parametrize("name", ["run_pipeline_with_repro_report", "lower_mlir_module", "stateless_fx_import"])
def test_functions_accept_torch_mlir_arguments(name):
    from torch_mlir import fx as peer

    theirs = list(inspect.signature(getattr(peer, name)).parameters)
    assert list(inspect.signature(getattr(fx_importer, name)).parameters)[: len(theirs)] == theirs


@pytest.mark.parametrize("output_type", OutputType, ids=lambda t: t.value)
def test_every_output_type(output_type):
    module = export_and_import(Affine(), X, output_type=output_type)
    assert isinstance(module, ir.Module)
    assert module.operation.verify()


def test_program_function_and_module_lower_alike():
    def double(x):
        return x * 2

    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    program = torch.export.export(Double(), (X,))
    texts = {str(export_and_import(f, *args)) for f, args in [(double, (X,)), (Double(), (X,)), (program, ())]}
    assert len(texts) == 1


def test_builtin_is_accepted_as_a_function():
    assert "torch.aten.relu" in str(export_and_import(torch.relu, X))


def test_loaded_program_imports_as_a_fresh_one(tmp_path):
    program = torch.export.export(Affine(), (X,))
    torch.export.save(program, tmp_path / "m.pt2")
    assert str(export_and_import(torch.export.load(tmp_path / "m.pt2"))) == str(export_and_import(program))


def test_given_program_is_unchanged():
    program = torch.export.export(Affine(), (X,))
    before = str(program)
    lower(program, output_type="linalg")
    assert str(program) == before


def test_legal_programs_are_copies_of_canonical_ones():
    """Folding batch normalization adds constants to the imported program; `Lowered.programs` stay as they were."""
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3)).eval()
    lowered = lower(model, torch.ones(1, 2, 4, 4), output_type="tosa")
    placeholders = lowered.program.graph.find_nodes(op="placeholder")
    assert [node.name for node in placeholders] == [s.arg.name for s in lowered.program.graph_signature.input_specs]
    assert not any("folded" in node.name for node in placeholders)


def test_keyword_arguments_go_to_the_model():
    assert "5.000000e+00" in str(export_and_import(Affine(), X, scale=5.0))
    assert "5.000000e+00" in str(export_and_import(Affine(), X, kwargs={"scale": 5.0}))


class Strict(torch.nn.Module):
    def forward(self, x, strict=1.0):
        return x * strict


def test_keyword_of_model_and_options_is_ambiguous():
    with pytest.raises(UsageError, match=r"kwargs=\{'strict'"):
        export_and_import(Strict(), X, strict=False)


def test_keyword_beside_kwargs_is_the_option():
    assert "3.000000e+00" in str(export_and_import(Strict(), X, strict=False, kwargs={"strict": 3.0}))


def test_unknown_option_is_distinguished_from_a_parameter():
    with pytest.raises(UsageError, match="did you mean 'output_type'"):
        export_and_import(Affine(), X, output_typ="tosa")


class TakesAnyKeyword(torch.nn.Module):
    def forward(self, x, **kwargs):
        return x * len(kwargs)


def test_misspelt_option_of_a_model_that_takes_any_keyword_is_a_warning():
    with pytest.warns(MisspeltOptionWarning, match=r"'output_typ' .* option 'output_type'.* kwargs=\{'output_typ'"):
        lower(TakesAnyKeyword(), X, output_typ="tosa")
    with pytest.warns(MisspeltOptionWarning, match="option 'output_types'"):
        explain(TakesAnyKeyword(), X, output_type=[], output_types=["torch"])


def test_other_keywords_of_a_model_that_takes_any_keyword_are_its_own():
    lower(TakesAnyKeyword(), X, temperature=1.0)
    lower(TakesAnyKeyword(), X, kwargs={"output_typ": 1.0})


@pytest.mark.parametrize("table", [[torch.ops.aten.relu.default], (), "core"], ids=["list", "tuple", "name"])
def test_a_decomposition_table_is_a_mapping(table):
    with pytest.raises(
        UsageError, match="of type .*: decomposition_table maps operators to functions, .*get_decompositions"
    ):
        lower(Affine(), X, decomposition_table=table)


@pytest.mark.parametrize("args", [(), (X, 2.0, X)], ids=["too few", "too many"])
def test_wrong_inputs_show_the_signature(args):
    with pytest.raises(UsageError, match=r"Affine.forward\(x, scale=2.0\) cannot be called"):
        export_and_import(Affine(), *args)


def test_unknown_output_type_is_an_error():
    with pytest.raises(UsageError, match="linalg-on-tensors"):
        export_and_import(Affine(), X, output_type="llvm")


def test_not_a_model():
    with pytest.raises(UsageError, match="not int"):
        export_and_import(3, X)  # pyright: ignore[reportArgumentType]


class DataDependent(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_export_error_suggests_a_fix():
    with pytest.raises(ExportError, match="draft_export") as error:
        export_and_import(DataDependent(), X, capture="export")
    assert "DataDependent" in str(error.value)
    assert error.value.__cause__ is not None


def test_meta_weights_error_suggests_a_fix():
    with torch.device("meta"):
        model, x = Affine(), torch.rand(2, 3)
    with pytest.raises(UnsupportedProgramError, match=r"linear.weight(.|\n)*materialize"):
        export_and_import(model, x)


def test_given_importer_is_used():
    importer = FxImporter(context=new_context())
    module = export_and_import(Affine(), X, fx_importer=importer, func_name="first")
    assert module is importer.module
    export_and_import(Affine(), X, fx_importer=importer, func_name="second")
    assert "@first" in str(module)
    assert "@second" in str(module)


def test_hooks_belong_to_the_importer():
    with pytest.raises(UsageError, match="hooks"):
        export_and_import(Affine(), X, fx_importer=FxImporter(), hooks=FxImporterHooks())


def test_empty_decomposition_table_decomposes_nothing():
    module = export_and_import(torch.nn.LayerNorm(3), X, decomposition_table={})
    assert "torch.aten.layer_norm" in str(module)


@pytest.mark.filterwarnings("ignore:BatchNorm1d is in training mode")
def test_program_is_functionalized_without_decompositions():
    module = export_and_import(lambda x: (x + 1).relu_(), X, decomposition_table={}, output_type="linalg")
    assert "linalg.generic" in str(module)
    with pytest.raises(UnsupportedProgramError, match="num_batches_tracked"):
        export_and_import(torch.nn.BatchNorm1d(3).train(), X, decomposition_table={})


def test_backend_legal_ops_are_not_decomposed():
    legal = export_and_import(torch.nn.Hardswish(), X, output_type="torch", backend_legal_ops=["aten.hardswish"])
    assert "torch.aten.hardswish" in str(legal)
    assert "torch.aten.hardswish" not in str(export_and_import(torch.nn.Hardswish(), X, output_type="torch"))


def test_printing_elides_the_weights(capfd):
    model = torch.nn.Linear(64, 64)
    lower(
        model,
        torch.rand(1, 64),
        output_type="linalg",
        verbose=True,
        enable_graph_printing=True,
        enable_ir_printing=True,
    )
    out, err = capfd.readouterr()
    assert "def forward" in out
    assert "after stage 'torch-backend'" in out
    assert "IR Dump After" in err
    assert len(out) + len(err) < 200_000


def test_trace_names_every_stage():
    lowered = lower(Affine(), X, output_type="tosa")
    names = [record.name for record in lowered.trace.stages]
    assert names[:4] == ["frontend", "decompositions", "fx_passes", "importing"]
    assert "tosa" in names
    assert all(record.seconds > 0 and record.snapshot is None for record in lowered.trace.stages)


def test_success_prints_nothing(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a module was printed")

    monkeypatch.setattr(ir.Operation, "get_asm", refuse)
    monkeypatch.setattr(ir.Operation, "print", refuse)
    monkeypatch.setattr(ir.Operation, "write_bytecode", refuse)
    monkeypatch.setattr(ir.Module, "__str__", refuse)
    export_and_import(Affine(), X, output_type="linalg")


def test_stateless_graph_lowers():
    graph = torch.export.export(torch.nn.Tanh(), (X,)).graph_module
    module = stateless_fx_import(graph, output_type="linalg", model_name="tanh")
    assert "func.func @tanh(%arg0: tensor<2x3xf32>)" in str(module)


def test_unsigned_integers_of_a_stateless_graph_are_unsigned():
    x = torch.tensor([250, 3], dtype=torch.uint8)
    graph = torch.export.export(FunctionModule(lambda x: (x.sum(), x > 100)), (x,)).graph_module
    module = stateless_fx_import(graph, output_type="linalg")
    total, large = JitBackend().load(module)(x)
    assert total.item() == 253
    assert large.tolist() == [True, False]
    assert all(node.meta["val"].dtype == torch.uint8 for node in graph.graph.find_nodes(op="placeholder"))


@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc"])
def test_saved_module_round_trips(tmp_path, suffix):
    lowered = lower(Affine(), X, output_type="linalg")
    path = tmp_path / f"m{suffix}"
    lowered.save(path)
    context = new_context()
    assert "linalg" in str(ir.Module.parseFile(str(path), context))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_failed_save_leaves_nothing(tmp_path):
    lowered = lower(Affine(), X)
    with pytest.raises(UsageError, match="does not exist"):
        lowered.save(tmp_path / "no" / "m.mlir")
    with pytest.raises(UsageError, match="suffix must be .mlir"):
        lowered.save(tmp_path / "m.txt")
    (tmp_path / "m.mlir").mkdir()
    with pytest.raises(UsageError, match="is a directory"):
        lowered.save(tmp_path / "m.mlir")
    assert [p.name for p in tmp_path.iterdir()] == ["m.mlir"]


def test_write_error_has_a_message(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(UsageError, match=r"m.mlir': Permission denied"):
        lower(Affine(), X).save(tmp_path / "m.mlir")


def test_full_disk_has_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    lowered = lower(torch.nn.Linear(1000, 1000), torch.rand(1, 1000))
    with pytest.raises(UsageError, match=r"takes 5,\d{3},\d{3} bytes, and the disk has 1,000,000 left"):
        lowered.save(tmp_path / "m.mlirbc")


@pytest.mark.parametrize("output_type", OutputType, ids=lambda t: t.value)
def test_symbolic_shapes_stay_in_the_torch_dialect(output_type):
    shapes = ({0: torch.export.Dim("batch")},)
    lowered = lower(
        lambda x: x.relu(),
        X,
        output_type=output_type,
        dynamic_shapes=shapes,
        import_symbolic_shape_expressions=True,
    )
    held = output_type in (OutputType.RAW, OutputType.TORCH)
    assert ("torch.bind_symbolic_shape" in str(lowered.module)) is held


def test_mutating_program_needs_a_policy():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count += 1
            return x + self.count

    with pytest.raises(UnsupportedProgramError, match="the buffer 'count'"):
        export_and_import(Counter(), X)
    functional = export_and_import(Counter(), X, mutation="functional", output_type="linalg")
    assert '-> (tensor<3xf32> {fx_importer.state = "count"}, tensor<2x3xf32>)' in str(functional)
    assert "!torch.tensor<[3],f32>" in str(export_and_import(Counter(), X, experimental_support_mutation=True))
    with pytest.raises(UsageError, match="'functional'"):
        export_and_import(Counter(), X, mutation="frozen")


class Nested(torch.nn.Module):
    def forward(self, inputs, *, scale, nothing=None):
        a, b = inputs["pair"]
        return {"sum": (a + b) * scale, "none": None, "list": [a, 3, "text"]}, b


def test_call_has_the_models_signature():
    inputs = {"pair": (X, X + 1)}
    lowered = lower(Nested(), inputs, output_type="linalg", kwargs={"scale": 2})
    result, expected = lowered.run(inputs, scale=2), Nested()(inputs, scale=2)
    assert result[0]["list"].pop() == expected[0]["list"].pop() == "text"
    torch.testing.assert_close(result, expected)
    with pytest.raises(UsageError, match="fixed to 2"):
        lowered.run(inputs, scale=3)
    with pytest.raises(UsageError, match=r"the inputs are args\[0\], kwargs"):
        lowered.run(X, scale=2)


def test_call_keeps_unsigned_dtypes():
    lowered = lower(lambda x: x + 1, torch.tensor([250], dtype=torch.uint8), output_type="linalg")
    assert lowered.run(torch.tensor([253], dtype=torch.uint8)).tolist() == [254]


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_output_types_without_a_backend(output_type):
    with pytest.raises(UsageError, match="lower to one of linalg-on-tensors, stablehlo, tosa"):
        lower(Affine(), X, output_type=output_type).run(X)


def warning_model(x):
    warnings.warn("the model's own", UserWarning, stacklevel=1)
    return x + 1


def warning_pass(module):
    warnings.warn("the pass's own", UserWarning, stacklevel=1)


def test_warnings_that_are_errors_stay_warnings(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="^the model's own$"):
            lower(warning_model, X, dump_dir=tmp_path)
        with pytest.raises(UserWarning, match="^the pass's own$"):
            lower(
                torch.sin,
                X,
                output_type="linalg",
                pipeline=lambda p: p.after("linalg", warning_pass),
                dump_dir=tmp_path,
            )
    assert not list(tmp_path.iterdir())
