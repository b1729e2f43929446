"""Common behavior of all backends: dtypes, weights of every size, functions by name, and error messages."""

import importlib.util

import pytest
import torch
from torch import nn

from fx_importer import CrashedError, NotInstalledError, StageFailed, UsageError, lower
from fx_importer.engines import StablehloBackend, TosaReferenceBackend, XlaBackend, backend_named
from fx_importer.engines.engine_table import module_engines
from fx_importer.engines.iree.iree_backend import IREE
from fx_importer.engines.stablehlo_interpreter.stablehlo_backend import STABLEHLO
from fx_importer.engines.tosa_reference.tosa_reference_backend import TOSA
from fx_importer.engines.xla.xla_backend import XLA
from fx_importer.mlir.bindings import ir, load_dialects, new_context

TRANSPOSE = {
    "stablehlo": "stablehlo.transpose %a, dims = [1, 0]",
    "tosa": "tosa.transpose %a {perms = array<i32: 1, 0>}",
}


def needs(extra: str, package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"the extra '{extra}' is not installed")


needs_tosa, needs_iree, needs_xla = needs("tosa", "tosa_reference_model"), needs("iree", "iree"), needs("xla", "jax")


def transpose(kind: str, element: str, shape: tuple[object, object] = (2, 3)) -> str:
    types = [f"tensor<{a}x{b}x{element}>" for a, b in (shape, shape[::-1])]
    return (
        f"func.func @main(%a: {types[0]}) -> {types[1]} {{\n"
        f"%0 = {TRANSPOSE[kind]} : ({types[0]}) -> {types[1]}\n return %0 : {types[1]} }}"
    )


def values(dtype: torch.dtype) -> torch.Tensor:
    raw = torch.arange(1, 1 + 6 * dtype.itemsize, dtype=torch.uint8)
    return raw.view(dtype).reshape(2, 3) if dtype is not torch.bool else (raw % 2).bool().reshape(2, 3)


@pytest.fixture
def parse():
    def parse(text):
        context = new_context()
        load_dialects(context)
        return ir.Module.parse(text, context)

    return parse


DTYPES = [
    pytest.param(name, kind, *row, id=f"{name}-{row[0]}", marks=marks)
    for name, kind, passes, marks in (
        ("stablehlo", "stablehlo", STABLEHLO, ()),
        ("tosa_reference", "tosa", TOSA, needs_tosa),
        ("iree", "stablehlo", IREE, needs_iree),
        ("xla", "stablehlo", XLA, needs_xla),
    )
    for row in passes.dtypes.items()
]


QUICK = (
    *("stablehlo-(f32|f16|i1|i8|ui32)", "tosa_reference-f16"),
    "(iree|xla)-(f32|bf16|f8E4M3FN|complex<f32>|i1|i8|i64|ui64)",
)
"""Each kind of element, and each width in one engine."""


@pytest.mark.slow_rows("^iree-(ui64|f32)$", unless=f"^({'|'.join(QUICK)})$")
@pytest.mark.parametrize("name, kind, element, dtypes", DTYPES)
def test_dtypes(parse, name, kind, element, dtypes):
    value = values(dtypes[0])
    (result,) = backend_named(name).load(parse(transpose(kind, element)))(value)
    assert result.dtype == dtypes[0]
    assert torch.equal(result.view(torch.uint8), value.mT.contiguous().view(torch.uint8))


class Weights(nn.Module):
    """A large weight, a small one, one of a two-byte dtype, and state."""

    def __init__(self):
        super().__init__()
        self.large = nn.Linear(20, 30)
        self.narrow = nn.Parameter(torch.randn(30).half())
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.randn(3).repeat(10))
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, inputs):
        self.calls.add_(1)
        return {"y": self.large(inputs["x"]) * self.scale + self.calls[0] + self.narrow.float()}, inputs["flag"]


@pytest.mark.slow_rows("^torch-iree$", "^(tosa|stablehlo)-iree")
@pytest.mark.parametrize(
    "output_type, backend",
    [
        ("linalg", None),
        ("linalg", "eager"),
        ("tosa", "eager"),
        ("raw", "eager"),
        ("stablehlo", None),
        ("stablehlo", "jit"),
        ("tosa", "jit"),
        pytest.param("tosa", None, marks=needs_tosa),
        pytest.param("linalg", "iree", marks=needs_iree),
        pytest.param("torch", "iree", marks=needs_iree),
        pytest.param("tosa", "iree", marks=needs_iree),
        pytest.param("stablehlo", "iree", marks=needs_iree),
        pytest.param("stablehlo", "xla", marks=needs_xla),
    ],
)
@torch.no_grad()
def test_weights_state_and_nesting(output_type, backend):
    torch.manual_seed(0)
    model = Weights()
    inputs = {"x": torch.randn(2, 20), "flag": torch.tensor([True, False])}
    caller = lower(model, inputs, output_type=output_type, mutation="functional").caller(backend=backend)
    model.calls.zero_()
    for _ in range(2):
        torch.testing.assert_close(caller(inputs), model(inputs))
    assert torch.equal(caller.state["calls"], model.calls)


class Constants(nn.Module):
    """Of many dtypes, large, small and empty."""

    def __init__(self):
        super().__init__()
        self.empty, self.bools, self.small, self.large, self.wide = map(
            nn.Buffer,
            (
                torch.zeros(0, 3),
                torch.arange(1600) % 3 == 0,
                torch.arange(3, dtype=torch.int8),
                torch.arange(300),
                torch.arange(200).double(),
            ),
        )

    def forward(self, x):
        return torch.cat([self.empty, x]), self.bools, self.small + 1, self.large * 2, self.wide


@pytest.mark.parametrize(
    "output_type, backend",
    [
        ("stablehlo", None),
        pytest.param("stablehlo", "xla", marks=needs_xla),
        pytest.param("linalg", "iree", marks=needs_iree),
    ],
)
def test_constants(output_type, backend):
    model, x = Constants(), torch.randn(2, 3)
    results = lower(model, x, output_type=output_type).caller(backend=backend)(x)
    torch.testing.assert_close(results, model(x))


@torch.no_grad()
def test_eager_writes_in_place():
    model, inputs = Weights(), {"x": torch.randn(2, 20), "flag": torch.tensor([True])}
    caller = lower(model, inputs, output_type="linalg", mutation="mutable").caller(backend="eager")
    model.calls.zero_()
    for _ in range(2):
        torch.testing.assert_close(caller(inputs), model(inputs))
    assert torch.equal(caller.state["calls"], model.calls)


def test_function_by_name_and_its_callees(parse):
    module = parse("""
        func.func private @twice(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.add %a, %a : tensor<2xf32>
          return %0 : tensor<2xf32>
        }
        func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = call @twice(%a) : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }
        func.func @of_main(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
          %0 = call @main(%a) : (tensor<2xf32>) -> tensor<2xf32>
          return %0, %a : tensor<2xf32>, tensor<2xf32>
        }
    """)
    before, x = str(module), torch.tensor([1.0, 2.0])
    for name, expected in (("twice", (x * 2,)), ("main", (x * 2,)), ("of_main", (x * 2, x))):
        results = StablehloBackend().load(module, name)(x)
        torch.testing.assert_close(results, expected)
    assert str(module) == before


def test_operation_that_aborts_the_interpreter(parse):
    text = """func.func @main(%a: tensor<2x2xf32>) -> tensor<2x2xf32> {
        %0 = "stablehlo.cholesky"(%a) {lower = true} : (tensor<2x2xf32>) -> tensor<2x2xf32>
        return %0 : tensor<2x2xf32> }"""
    loaded = StablehloBackend().load(parse(text))
    with pytest.raises(CrashedError, match="StableHLO's interpreter was ended by the signal SIGABRT") as raised:
        loaded(torch.eye(2))
    assert "cholesky" in raised.value.output


@pytest.mark.parametrize("name", ["stablehlo", pytest.param("tosa_reference", marks=needs_tosa)])
def test_unsupported_modules_are_errors(parse, name):
    kind = "tensor<2xf32>"
    text = f"func.func @main(%a: {kind}) -> {kind} {{ %0 = math.exp %a : {kind} return %0 : {kind} }}"
    with pytest.raises(UsageError, match="holds math.exp, which it does not know"):
        backend_named(name).load(parse(text))
    with pytest.raises(UsageError, match="cannot be run: argument 0 is f32"):
        backend_named(name).load(parse("func.func @main(%a: f32) { return }"))
    with pytest.raises(UsageError, match="the module has no function 'other': there is 'main'"):
        backend_named(name).load(parse(text), "other")


def test_dynamic_size_differs_between_calls(parse):
    loaded = StablehloBackend().load(parse(transpose("stablehlo", "f32", ("?", 3))))
    for rows in (0, 1, 4):
        x = torch.randn(rows, 3)
        assert torch.equal(loaded(x)[0], x.mT)
    with pytest.raises(UsageError, match=r"has shape \[2, 4\], but the function takes \[any, 3\]"):
        loaded(torch.ones(2, 4))


@needs_tosa
def test_tosa_requires_valid_tosa(parse):
    text = """func.func @main(%a: tensor<1x1x1x1x1x1x2xf32>) -> tensor<1x1x1x1x1x1x2xf32> {
        %0 = tosa.abs %a : (tensor<1x1x1x1x1x1x2xf32>) -> tensor<1x1x1x1x1x1x2xf32>
        return %0 : tensor<1x1x1x1x1x1x2xf32> }"""
    with pytest.raises(UsageError, match="(?s)the module is not TOSA of profiles=pro_fp.*rank"):
        TosaReferenceBackend().load(parse(text))


@pytest.mark.parametrize("name, extra", [("tosa_reference", "tosa"), ("iree", "iree"), ("xla", "xla")])
def test_missing_backend_names_its_extra(parse, monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match=rf"pip install 'fx-importer\[{extra}\]'$") as raised:
        backend_named(name).load(parse(transpose("stablehlo", "f32")))
    assert raised.value.extra == extra


@pytest.mark.parametrize("backend", ["jit", "eager", pytest.param("iree", marks=needs_iree)])
def test_python_scalars(backend):
    def program(x, count, factor, flag):
        return x * count + factor, count + 1, factor * 2, flag

    x, dynamic = torch.randn(3), (None, torch.export.Dim.DYNAMIC, None, None)
    caller = lower(program, x, 3, 1.5, True, output_type="linalg", dynamic_shapes=dynamic).caller(backend=backend)
    for count in (2, 7):
        torch.testing.assert_close(caller(x, count, 1.5, True), program(x, count, 1.5, True))


@pytest.mark.parametrize(
    "backend", ["stablehlo", "eager", pytest.param("iree", marks=needs_iree), pytest.param("xla", marks=needs_xla)]
)
def test_sizes_and_scalars_in_stablehlo(backend):
    def program(x, count, factor):
        return (x * factor).view(x.shape[0] * 2, -1) + torch.arange(count).sum(), torch.ones(count), count + x.shape[0]

    x = torch.randn(3, 4)
    shapes = ({0: torch.export.Dim.DYNAMIC}, torch.export.Dim.DYNAMIC, None)
    caller = lower(program, x, 3, 1.5, dynamic_shapes=shapes, output_type="stablehlo").caller(backend=backend)
    for rows, count in ((3, 3), (5, 7), (3, 3)):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(caller(x, count, 1.5), program(x, count, 1.5))


@needs_iree
@pytest.mark.parametrize("backend", ["jit", "stablehlo"])
def test_unsigned_integers_in_stablehlo(backend):
    x = torch.tensor([200, 3, 255], dtype=torch.uint8)

    def model(x):
        return x.double(), x // 7, x > 100, x.max(), x * 2

    found = lower(model, x, output_type="stablehlo").caller(backend=backend_named(backend))(x)
    for value, expected in zip(found, model(x), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


@needs_iree
def test_iree_takes_dynamic_sizes_and_reports_compile_errors(parse):
    model, example = nn.Softmax(1), torch.randn(4, 10)
    lowered = lower(model, example, output_type="linalg", dynamic_shapes=({0: torch.export.Dim("rows")},))
    caller = lowered.caller(backend="iree")
    for rows in (1, 7):
        x = torch.randn(rows, 10)
        torch.testing.assert_close(caller(x), model(x))
    text = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
        %0 = stablehlo.custom_call @foo(%a) : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32> }"""
    with pytest.raises(StageFailed, match="stage 'iree-compile' failed:\n.*stablehlo.custom_call"):
        backend_named("iree").load(parse(text))


def test_backend_names():
    for engine in module_engines():
        assert backend_named(engine.name).name == engine.name
    with pytest.raises(UsageError, match="unknown backend 'cuda': accepted are 'jit', 'stablehlo'"):
        backend_named("cuda")
    with pytest.raises(UsageError, match="no backend runs torch by itself"):
        lower(torch.relu, torch.ones(2), output_type="torch").run(torch.ones(2))


@needs_xla
def test_a_platform_that_xla_does_not_have_is_named():
    lowered = lower(nn.ReLU(), torch.ones(3), output_type="stablehlo")
    assert lowered.caller(backend=XlaBackend(platform="cpu"))(-torch.ones(3)).tolist() == [0, 0, 0]
    with pytest.raises(UsageError, match=r"no platform 'nothing' here: .*pip install 'jax\[cuda13\]' for 'cuda'"):
        lowered.caller(backend=XlaBackend(platform="nothing"))(torch.ones(3))
