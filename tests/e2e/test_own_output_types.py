"""Output types defined by users: derived from built-in ones, checked, executed; their names, and invalid
definitions.
"""

import copy
import os
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import fx_importer
from fx_importer import (
    ContractWarning,
    OutputType,
    Pipeline,
    StageFailed,
    UsageError,
    explain,
    lower,
    lower_mlir_module,
    pipeline_for,
    stateless_fx_import,
)
from fx_importer.api.reproduce import reproduce
from fx_importer.dynamo import backend
from fx_importer.engines.jit.jit_backend import JitBackend
from fx_importer.mlir.bindings import ir, new_context
from fx_importer.pipelines import parse_steps, run_stage

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x)) + x


MODEL = Model()


@pytest.fixture(autouse=True)
def dump(tmp_path, monkeypatch):
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))
    return tmp_path


def forget_output_types() -> None:
    for name in ("npu", "npu2", "quiet"):
        try:
            OutputType.forget(name)
        except UsageError:
            continue


@pytest.fixture(autouse=True)
def no_defined_output_types():
    forget_output_types()
    yield
    forget_output_types()


def renamed(module: ir.Operation, old: str, new: str) -> None:
    """Replace each operation ``old`` by ``new``, with the same operands, attributes and results."""
    found: list[ir.Operation] = []

    def see(op: ir.Operation) -> ir.WalkResult:
        if op.name == old:
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.walk(see)
    for op in found:
        attributes = {name: op.attributes[name] for name in op.attributes}
        kinds = [value.type for value in op.results]
        made = ir.Operation.create(new, kinds, list(op.operands), attributes, loc=op.location, ip=ir.InsertionPoint(op))
        for before, after in zip(op.results, made.results, strict=True):
            before.replace_all_uses_with(after)
        op.erase()


def to_npu(module: ir.Operation) -> None:
    """Rewrite tosa.tanh to npu.tanh."""
    renamed(module, "tosa.tanh", "npu.tanh")


class NpuBackend:
    """Runs the accelerator's operations on the CPU."""

    name = "npu"

    def load(self, module: ir.Module, func_name: str = "main"):
        back = ir.Module.parse(str(module), module.context)
        renamed(back.operation, "npu.tanh", "tosa.tanh")
        return JitBackend().load(back, func_name)


def define_npu(**changes) -> OutputType:
    given = {"base": "tosa", "pipeline": lambda p: p.after("tosa-simplify", to_npu), "allows": {"npu", "tosa"}}
    return OutputType.define("npu", **(given | changes))


@pytest.mark.parametrize("isolate", [False, True])
def test_unregistered_dialect(isolate, tmp_path):
    npu = define_npu()
    lowered = lower(MODEL, X, output_type="NPU", isolate=isolate)
    assert lowered.options.output_type is npu
    assert lowered.manifest.output_type == "npu"
    assert '"npu.tanh"' in str(lowered.module)
    assert "tosa.tanh" not in str(lowered.module)
    assert [each.name for each in lowered.trace.stages][-6:-3] == ["tosa-simplify", "to_npu", "backend-types"]
    assert lowered.verify(backends=[NpuBackend()])
    assert lowered.bisect(backend=NpuBackend(), isolate=False) is None
    torch.testing.assert_close(lowered.caller(backend=NpuBackend())(X), MODEL(X))
    with pytest.raises(UsageError, match=r"the module holds npu.tanh, which it does not know"):
        lowered.caller(backend="jit")(X)
    lowered.save(tmp_path / "m.mlir")
    (context := new_context()).allow_unregistered_dialects = True
    assert "npu.tanh" in str(ir.Module.parseFile(str(tmp_path / "m.mlir"), context))


def test_backend_of_the_base():
    OutputType.define("quiet", base="linalg", pipeline=lambda p: p.before("contract", "func.func(cse)"))
    lowered = lower(MODEL, X, output_type="quiet")
    torch.testing.assert_close(lowered.run(X), MODEL(X))
    verdict = lowered.verify(backends=["jit"], isolate=False)
    assert verdict
    assert verdict.output_type.value == "quiet"
    assert "fx-importer-check-linalg-on-tensors-contract" in str(pipeline_for("quiet"))


def test_contract_names_illegal_operations():
    define_npu(allows={"npu", "tosa.add", "tosa.const"})
    with pytest.raises(StageFailed) as caught:
        lower(MODEL, X, output_type="npu")
    message = str(caught.value)
    assert caught.value.stage == "contract"
    assert "npu may not hold 'tosa.matmul': its dialects are func, npu, tosa.add, tosa.const" in message
    assert "tosa.add':" not in message
    assert caught.value.causes[0].places[0].source == "return torch.tanh(self.linear(x)) + x"
    assert caught.value.report is not None
    assert reproduce(caught.value.report).same
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ContractWarning)
        lower(MODEL, X, output_type="npu", contract="warn")
    assert any("npu may not hold 'tosa.matmul'" in str(each.message) for each in warned)


def test_contract_text_runs_without_the_definition():
    define_npu()
    stage = pipeline_for("npu").stages[-1]
    assert str(stage) == "builtin.module(fx-importer-check-npu-contract{npu,tosa})"
    forget_output_types()
    assert parse_steps(str(stage)) == parse_steps(str(stage))
    given = ir.Module.parse("func.func @main() -> i1 { %0 = arith.constant true return %0 : i1 }", new_context())
    with pytest.raises(ir.MLIRError, match=r"npu may not hold 'arith.constant'"):
        run_stage(fx_importer.Stage("again", "", parse_steps(str(stage))), given)


def test_contract_is_the_last_pass_of_any_pipeline():
    define_npu(pipeline=lambda p: Pipeline("mine", ()))
    assert [stage.name for stage in pipeline_for("npu").stages] == ["contract"]
    with pytest.raises(StageFailed, match=r"npu may not hold 'torch.aten"):
        lower(MODEL, X, output_type="npu")
    forget_output_types()
    OutputType.define("npu", base="raw", pipeline=Pipeline.of("npu", "cse"))
    assert [stage.name for stage in pipeline_for("npu").stages] == ["cse"]
    assert "torch.aten.tanh" in str(lower(MODEL, X, output_type="npu").module)


def test_output_type_derived_from_a_user_output_type():
    npu = define_npu()
    npu2 = OutputType.define("npu2", base=npu, pipeline=lambda p: p.after("to_npu", "cse"), allows={"npu", "tosa"})
    assert npu2.root is OutputType.TOSA
    names = [stage.name for stage in pipeline_for("npu2").stages]
    assert names[names.index("to_npu") + 1] == "cse"
    assert '"npu.tanh"' in str(lower(MODEL, X, output_type=npu2).module)


def test_own_decompositions():
    operator = torch.ops.aten.tanh.default

    def rule(x: torch.Tensor) -> torch.Tensor:
        return 2 * torch.sigmoid(2 * x) - 1

    whole = OutputType.define("npu", base="torch", decompositions=lambda table: {**table, operator: rule})
    assert "torch.aten.sigmoid" in str(lower(MODEL, X, output_type=whole).module)
    forget_output_types()
    OutputType.define("npu", base="torch", decompositions={})
    kept = {node.target for node in lower(MODEL, X, output_type="npu").program.graph.nodes}
    assert {torch.ops.aten.linear.default, operator} <= kept
    forget_output_types()
    OutputType.define("npu", base="torch", decompositions=lambda table: None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="its decompositions are no table but NoneType"):
        lower(MODEL, X, output_type="npu")


def test_other_functions_of_the_api():
    define_npu(pipeline=lambda p: p.after("torch-backend", "cse").after("tosa-simplify", to_npu))
    given = ir.Module.parse(
        "func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {"
        "%0 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32> "
        "return %0 : !torch.vtensor<[2],f32> }",
        new_context(),
    )
    lower_mlir_module(False, "npu", given)
    assert "npu.tanh" in str(given)
    graph = torch.export.export(nn.Tanh(), (X,)).graph_module
    assert "npu.tanh" in str(stateless_fx_import(graph, output_type="npu"))


def test_torch_compile():
    OutputType.define("quiet", base="linalg", pipeline=lambda p: p.before("contract", "func.func(cse)"))
    compiled = torch.compile(MODEL, backend=backend, options={"output_type": "quiet"})
    torch.testing.assert_close(compiled(X), MODEL(X))


def test_explain():
    define_npu()
    found = explain(lambda x: torch.ops.aten._standard_gamma(x) + torch.tanh(x), X.abs(), output_types=["npu"])
    (cause,) = found["npu"].causes
    assert cause.op == "aten._standard_gamma.default"
    assert "npu: 1 problem" in str(found)


def test_one_object_per_name():
    npu = define_npu(pipeline=None)
    for each in (npu, *OutputType):
        assert OutputType.get(each.value) is copy.deepcopy(each) is pickle.loads(pickle.dumps(each)) is each
    text = pickle.dumps(npu)
    forget_output_types()
    again = pickle.loads(text)
    assert again is OutputType.get("npu")
    assert (again.base, again.allows, again.where) == (OutputType.TOSA, npu.allows, npu.where)
    assert npu.where.startswith(__file__)
    assert repr(npu) == f"<OutputType 'npu', at {npu.where}>"
    assert repr(OutputType.TOSA) == "<OutputType.TOSA>"
    assert [each.value for each in OutputType] == ["raw", "torch", "linalg-on-tensors", "tosa", "stablehlo"]
    assert OutputType("TOSA") is OutputType.TOSA


def test_duplicate_name():
    first = define_npu()
    with pytest.raises(UsageError) as caught:
        OutputType.define("N-P-U", base="linalg")
    message = str(caught.value)
    assert message.startswith(f"output type 'N-P-U', at {__file__}:")
    assert f"there is 'npu' already, defined at {first.where}; OutputType.forget('npu') takes it away" in message
    for own in ("linalg", "Stable-HLO"):
        with pytest.raises(UsageError, match=rf"'{own}', at .*: there is '.*' already, one of the package's own$"):
            OutputType.define(own, base="tosa")
    for name in ("tosa", "npu2"):
        with pytest.raises(UsageError, match=f"^no output type '{name}' was defined$"):
            OutputType.forget(name)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"base": "x86"}, "unknown output type 'x86': accepted are 'raw', 'torch', "),
        ({"allows": "npu"}, "output type 'npu': allows is a set of dialects: allows={'npu'}"),
        ({"allows": {"no such"}}, "output type 'npu': allows has 'no such', which names no dialect and no operation"),
        ({"decompositions": 3}, "output type 'npu': decompositions=3 is neither a table nor a function of one"),
    ],
)
def test_invalid_definitions(changes, expected):
    with pytest.raises(UsageError, match=expected):
        define_npu(**changes)
    with pytest.raises(UsageError, match="'n p u' names no output type: a name is of letters, digits, '-' and '_'"):
        OutputType.define("n p u", base="tosa")


def test_pipeline_error_names_the_output_type():
    npu = define_npu(pipeline=lambda p: p.after("tossa", to_npu))
    with pytest.raises(UsageError) as caught:
        lower(MODEL, X, output_type="npu")
    start = f"output type 'npu' ({npu.where}): pipeline 'npu' has no stage 'tossa'; its stages are: torch-backend, "
    assert str(caught.value).startswith(start)
    with pytest.raises(UsageError, match="'raw', 'torch', 'linalg-on-tensors', 'tosa', 'stablehlo', 'npu' [(]in any"):
        OutputType.get("x86")


PLUGIN = """
from fx_importer import OutputType

def to_npu(module):
    assert "tosa.tanh" in str(module)

OutputType.define("npu", base="tosa", allows={"tosa", "npu"}, pipeline=lambda p: p.after("tosa", to_npu))
"""


def test_plugin_by_entry_point(tmp_path):
    (tmp_path / "npu_plugin.py").write_text(PLUGIN)
    (tmp_path / "npu_nothing.py").write_text("")
    (tmp_path / "npu_broken.py").write_text("raise OSError('no driver')")
    info = tmp_path / "npu_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npu-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fx_importer.output_types]\nnpu = npu_plugin\nnothing = npu_nothing\nbroken = npu_broken\n"
    )
    (tmp_path / "model.py").write_text("import torch\n\ndef model():\n    return torch.nn.Tanh(), (torch.ones(2),)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fx_importer", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("import", "model:model", "--output-type", "npu", "-o", "-")
    assert done.returncode == 0, done.stderr
    assert "tosa.tanh" in done.stdout
    listed = run("pipelines", "--output-type", "npu")
    assert "to_npu" in listed.stdout
    assert "fx-importer-check-npu-contract{npu,tosa}" in listed.stdout
    lookups = (
        "for name in ('nothing', 'broken', 'x86'):\n    try: OutputType.get(name)\n    except UsageError as e: print(e)"
    )
    command = [sys.executable, "-c", f"from fx_importer import OutputType, UsageError\n{lookups}"]
    errors = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "is of the package 'npu-plugin', whose 'npu_nothing' defines none: it has to call" in errors
    assert "whose 'npu_broken' cannot be imported: OSError: no driver" in errors
    assert "'stablehlo', 'npu', 'nothing', 'broken' (in any case" in errors
