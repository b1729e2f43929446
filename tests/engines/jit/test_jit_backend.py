"""JIT-compiled functions: arguments and results of every dtype and layout, and their memory."""

import gc
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fx_importer import StageFailed, UsageError, export_and_import
from fx_importer.calls.backend import Backend
from fx_importer.engines import JitBackend
from fx_importer.mlir.dtypes import DTYPES

IDENTITY = "func.func @main(%a: tensor<{0}>) -> tensor<{0}> {{ return %a : tensor<{0}> }}"
ADD_ONE = """
#map = affine_map<(i, j) -> (i, j)>
func.func @main(%a: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %one = arith.constant 1.0 : f32
  %r = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel"]} outs(%a : tensor<?x?xf32>) {
  ^bb0(%x: f32):
    %s = arith.addf %x, %one : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
"""


def every_byte(dtype: torch.dtype) -> torch.Tensor:
    """Return a 2x256 tensor whose elements take every pattern of the last byte."""
    if dtype is torch.bool:
        return (torch.arange(512) % 3 == 0).reshape(2, 256)
    raw = torch.zeros(2, 256, dtype.itemsize, dtype=torch.uint8)
    raw[..., -1] = torch.arange(256)
    raw[1, :, 0] = 1
    return raw.view(dtype).squeeze(-1)


def bytes_of(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(torch.uint8).flatten().tolist()


@pytest.mark.parametrize(
    "element_type, dtype", [(name, dtype) for name, dtypes in DTYPES.items() for dtype in dtypes], ids=str
)
def test_every_bit_pattern_of_every_dtype(jit, element_type, dtype):
    value = every_byte(dtype)
    (result,) = jit(IDENTITY.format(f"2x256x{element_type}"))(value)
    assert result.dtype == DTYPES[element_type][0]
    assert result.shape == value.shape
    assert bytes_of(result) == bytes_of(value)
    assert result.data_ptr() != value.data_ptr()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (3, 1, 2)], ids=str)
def test_shapes(jit, shape):
    value = torch.randn(shape)
    for text in ("x".join([*map(str, shape), "f32"]), "x".join(["?"] * len(shape) + ["f32"])):
        (result,) = jit(IDENTITY.format(text))(value)
        assert result.shape == shape
        assert torch.equal(result, value)


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4).T,
        torch.randn(8, 4)[::2],
        torch.randn(1, 4).expand(3, 4),
        torch.randn(3, 4, requires_grad=True),
        torch.complex(torch.randn(3, 4), torch.randn(3, 4)).conj().imag,
        torch.randn(5)[1:].reshape(2, 2),
        torch.randn(4, 0).T,
    ],
    ids=["transposed", "strided", "expanded", "grad", "negated", "offset", "empty"],
)
def test_inputs_of_any_layout_are_not_modified(jit, value):
    before = value.detach().clone()
    function = jit(ADD_ONE)
    for _ in range(2):
        (result,) = function(value)
        assert torch.equal(result, before + 1)
        assert result.is_contiguous()
        assert not result.requires_grad
    assert torch.equal(value, before)


def test_python_scalars(jit):
    function = jit(
        """func.func @main(%n: i64, %x: f64, %b: i1) -> (i1, i64, tensor<f64>, f64) {
          %t = tensor.from_elements %x : tensor<f64>
          return %b, %n, %t, %x : i1, i64, tensor<f64>, f64
        }"""
    )
    for n, x, b in [(2**63 - 1, 0.1, True), (-(2**63), float("-inf"), False), (0, -0.0, True)]:
        results = function(n, x, b)
        assert results == (b, n, torch.tensor(x, dtype=torch.float64), x)
        assert [type(each) for each in results] == [bool, int, torch.Tensor, float]
    assert function(1, 2, False)[3] == 2.0


@pytest.mark.parametrize("kind, value", [("i64", -3), ("f64", 0.25), ("i1", True)])
def test_single_scalar(jit, kind, value):
    (result,) = jit(f"func.func @main(%a: {kind}) -> {kind} {{ return %a : {kind} }}")(value)
    assert result == value
    assert type(result) is type(value)


def test_no_arguments_and_no_results(jit):
    assert jit("func.func @main() { return }")() == ()
    assert jit("func.func @main(%a: tensor<2xf32>, %n: i64) { return }")(torch.ones(2), 3) == ()


def test_arguments_and_constants_as_results_are_independent(jit):
    function = jit(
        """func.func @main(%a: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
          %c = arith.constant dense<[5.0, 6.0]> : tensor<2xf32>
          return %a, %a, %c, %c : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
        }"""
    )
    value = torch.tensor([1.0, 2.0])
    for _ in range(2):
        results = function(value)
        assert [each.tolist() for each in results] == [[1, 2], [1, 2], [5, 6], [5, 6]]
        for i, each in enumerate(results):
            each.fill_(i)
        assert [each.tolist() for each in results] == [[i, i] for i in range(4)]
    assert value.tolist() == [1, 2]


def test_results_that_are_views_of_one_tensor(jit):
    """The strides of an axis of one element may be any; both results are the caller's own."""
    function = jit(
        """func.func @main(%a: tensor<6x4xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<2x2xf32>) {
          %m = math.absf %a : tensor<6x4xf32>
          %x = tensor.extract_slice %m[0, 0] [1, 2] [1, 1] : tensor<6x4xf32> to tensor<1x2xf32>
          %y = tensor.extract_slice %m[3, 1] [2, 2] [1, 1] : tensor<6x4xf32> to tensor<2x2xf32>
          return %x, %x, %y : tensor<1x2xf32>, tensor<1x2xf32>, tensor<2x2xf32>
        }"""
    )
    value = -torch.arange(24.0).reshape(6, 4)
    for _ in range(2):
        one, same, other = function(value)
        assert (one.tolist(), other.tolist()) == ([[0, 1]], [[13, 14], [17, 18]])
        one.fill_(7)
        assert same.tolist() == [[0, 1]]


def test_result_outlives_the_function(jit):
    function = jit(ADD_ONE)
    (result,) = function(torch.zeros(30, 40))
    del function
    gc.collect()
    assert torch.equal(result, torch.ones(30, 40))


def test_memory_is_freed(jit):
    function = jit(ADD_ONE)
    value = torch.zeros(512, 1024)  # 2 MB

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(10):
        function(value)
    before = peak()
    for _ in range(200):
        function(value)
    assert peak() - before < 100 * 1024  # in KB; 200 leaked results would be 400 MB


def test_threads_take_turns(jit):
    function = jit(ADD_ONE)
    values = [torch.full((64, 64), float(i)) for i in range(32)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(function, values))
    assert all(torch.equal(result, value + 1) for (result,), value in zip(results, values, strict=True))


def test_module_is_unchanged(parse):
    module = parse(ADD_ONE)
    before = str(module)
    JitBackend().load(module)
    assert str(module) == before


def test_functions_by_name(parse):
    module = parse(
        """
        func.func private @twice(%a: i64) -> i64 { %r = arith.addi %a, %a : i64 return %r : i64 }
        func.func @four_times(%a: i64) -> i64 {
          %b = call @twice(%a) : (i64) -> i64
          %c = call @twice(%b) : (i64) -> i64
          return %c : i64
        }
        func.func @broken(%a: !torch.int) -> !torch.int { return %a : !torch.int }
        """
    )
    assert JitBackend().load(module, "four_times")(3) == (12,)
    assert JitBackend().load(module, "twice")(3) == (6,)
    with pytest.raises(UsageError) as caught:
        JitBackend().load(module)
    assert str(caught.value) == "the module has no function 'main': there is 'twice', 'four_times', 'broken'"


def test_module_that_is_not_lowered():
    module = export_and_import(torch.nn.ReLU(), torch.ones(2))
    with pytest.raises(UsageError, match=r"'main' cannot be run: argument 0 is !torch.vtensor<\[2\],f32>"):
        JitBackend().load(module)


def test_undefined_functions_are_named_without_output(parse, capfd: pytest.CaptureFixture[str]):
    module = parse("func.func private @elsewhere()\nfunc.func @main() { call @elsewhere() : () -> ()\n return }")
    with pytest.raises(StageFailed, match="stage 'compile' failed(.|\n)*functions that nothing defines: elsewhere"):
        JitBackend().load(module)
    assert capfd.readouterr().err == ""


def test_operations_without_a_cpu_lowering(parse):
    kind = "tensor<2x2xf32>"
    body = f"%q = stablehlo.cholesky %a, lower = true : {kind}\n"
    body += f"%r = stablehlo.custom_call @own(%q) : ({kind}) -> {kind}\n return %r : {kind}"
    with pytest.raises(
        UsageError, match="the module holds stablehlo.cholesky, stablehlo.custom_call, which it does not"
    ):
        JitBackend().load(parse(f"func.func @main(%a: {kind}) -> {kind} {{ {body} }}"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_conversions_between_floats_are_bit_exact(jit, dtype, target):
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(5000, generator=generator, dtype=torch.float64) * 10.0 ** torch.randint(
        -9, 9, (5000,), generator=generator
    )
    value = torch.cat(
        [
            value,
            torch.tensor(
                [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 65519.9, 65520.0, 1e-8, 2.0**-25, 1 + 2.0**-11]
            ),
        ]
    )
    value = value.to(dtype)
    names = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
    source, to = names[dtype], names[target]
    if dtype == target:
        body = "linalg.yield %x : " + source
    else:
        op = "truncf" if target.itemsize < dtype.itemsize else "extf"
        if target.itemsize == dtype.itemsize:  # f16 and bf16: through f32
            body = f"%w = arith.extf %x : {source} to f32\n %s = arith.truncf %w : f32 to {to}\n linalg.yield %s : {to}"
        else:
            body = f"%s = arith.{op} %x : {source} to {to}\n linalg.yield %s : {to}"
    n = len(value)
    function = jit(
        f"""#map = affine_map<(i) -> (i)>
        func.func @main(%a: tensor<{n}x{source}>) -> tensor<{n}x{to}> {{
          %e = tensor.empty() : tensor<{n}x{to}>
          %r = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel"]}}
            ins(%a : tensor<{n}x{source}>) outs(%e : tensor<{n}x{to}>) {{
          ^bb0(%x: {source}, %z: {to}):
            {body}
          }} -> tensor<{n}x{to}>
          return %r : tensor<{n}x{to}>
        }}"""
    )
    (result,) = function(value)
    expected = value.to(target)
    assert torch.equal(result.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert bytes_of(result[numbers]) == bytes_of(expected[numbers])


MATH = {
    "exp": torch.exp, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p, "log2": torch.log2,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "tanh": torch.tanh, "atan": torch.atan, "erf": torch.erf, "sinh": torch.sinh, "asinh": torch.asinh,
    "floor": torch.floor, "ceil": torch.ceil, "roundeven": torch.round, "absf": torch.abs,
    "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_functions_are_accurate(jit, dtype):
    t = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    edges = torch.tensor(
        [0.0, -0.0, 1e-3, -1e-3, 1e-7, 0.5, -0.5, 1.5, 2.5, 88.0, -88.0, float("inf"), -float("inf"), float("nan")]
    )
    value = torch.cat([edges, torch.linspace(-20, 20, 501)]).to(dtype)
    n = len(value)
    results = ", ".join([f"tensor<{n}x{t}>"] * len(MATH))
    lines = [
        f"""%{op} = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel"]}}
          ins(%a : tensor<{n}x{t}>) outs(%e : tensor<{n}x{t}>) {{
        ^bb0(%x: {t}, %z: {t}):
          %s = math.{op} %x : {t}
          linalg.yield %s : {t}
        }} -> tensor<{n}x{t}>"""
        for op in MATH
    ]
    function = jit(
        f"""#map = affine_map<(i) -> (i)>
        func.func @main(%a: tensor<{n}x{t}>) -> ({results}) {{
          %e = tensor.empty() : tensor<{n}x{t}>
          {" ".join(lines)}
          return {", ".join(f"%{op}" for op in MATH)} : {results}
        }}"""
    )
    rtol = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    for (op, eager), result in zip(MATH.items(), function(value), strict=True):
        expected = eager(value.double()).to(dtype)  # eager's own half-precision erf loses small arguments
        torch.testing.assert_close(
            result, expected, rtol=rtol, atol=0, equal_nan=True, msg=lambda text, op=op: f"{op}: {text}"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_nan_propagates(jit, dtype):
    t = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    function = jit(
        f"""#map = affine_map<(i) -> (i)>
        func.func @main(%a: tensor<4x{t}>, %b: tensor<4x{t}>) -> (tensor<4x{t}>, tensor<4x{t}>) {{
          %e = tensor.empty() : tensor<4x{t}>
          %r:2 = linalg.generic {{indexing_maps = [#map, #map, #map, #map], iterator_types = ["parallel"]}}
            ins(%a, %b : tensor<4x{t}>, tensor<4x{t}>) outs(%e, %e : tensor<4x{t}>, tensor<4x{t}>) {{
          ^bb0(%x: {t}, %y: {t}, %z: {t}, %w: {t}):
            %s = arith.maximumf %x, %y : {t}
            %u = arith.minimumf %x, %y : {t}
            linalg.yield %s, %u : {t}, {t}
          }} -> (tensor<4x{t}>, tensor<4x{t}>)
          return %r#0, %r#1 : tensor<4x{t}>, tensor<4x{t}>
        }}"""
    )
    left = torch.tensor([float("nan"), 1, 2, float("-inf")], dtype=dtype)
    right = torch.tensor([1, float("nan"), 3, 0], dtype=dtype)
    largest, smallest = function(left, right)
    torch.testing.assert_close(largest, torch.maximum(left, right), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(smallest, torch.minimum(left, right), rtol=0, atol=0, equal_nan=True)


def test_state_persists_between_calls():
    # The random number generator's seed is a global of the module.
    function = JitBackend().load(export_and_import(Noise(), torch.zeros(4), output_type="linalg"))
    (first,), (second,) = function(torch.zeros(4)), function(torch.zeros(4))
    assert not torch.equal(first, second)
    for noise in (first, second):
        assert torch.all((noise >= 0) & (noise < 1))


class Noise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def test_jit_is_a_backend():
    backend: Backend = JitBackend()
    assert backend.name == "jit"
