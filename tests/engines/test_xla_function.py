"""Programs on one device of XLA: what is read and returned in place, tested on the CPU by the code for GPUs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from fx_importer import UsageError, lower
from fx_importer.calls.call_signature import Signature, TensorKind
from fx_importer.engines import BackendOptions, HostCalls, XlaBackend
from fx_importer.engines.xla import xla_backend
from fx_importer.engines.xla.engine import XLA_ENGINE
from tests.engines.test_engine_table import needs_xla

pytestmark = needs_xla


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.register_buffer("sum", torch.zeros(64, 16))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.sum += self.layer(x)
        self.count += 1
        return self.sum * 1.5, self.count + 0


def load(model, *inputs, **options) -> Any:
    lowered = lower(model, *inputs, output_type="stablehlo", mutation="functional", **options)
    return XlaBackend().load(lowered.module)


class Addresses:
    """The addresses of the arrays that a function is called with, and how many of them were made for the calls."""

    def __init__(self, function: Any):
        self.read: list[list[int]] = []
        self.made, self._execute = 0, function._execute
        function._execute = self.execute
        for reader in function._readers:
            make = reader._array
            reader._array = lambda *arguments, make=make: self.count(make(*arguments))

    def count(self, array: Any) -> Any:
        self.made += 1
        return array

    def execute(self, arrays: list[Any]) -> Any:
        self.read.append([array.unsafe_buffer_pointer() for array in arrays])
        return self._execute(arrays)


def test_arguments_are_read_in_place():
    x, y = torch.randn(64, 16), torch.randn(64, 16)
    function = load(lambda x, y: x + y, x, y)
    addresses = Addresses(function)
    for _ in range(3):
        (result,) = function(x, y)
        torch.testing.assert_close(result, x + y)
        x += 1  # what a tensor holds is read in each call
    assert addresses.read == [[x.data_ptr(), y.data_ptr()]] * 3
    assert addresses.made == 2  # one array for each tensor, as long as it lives


def test_arrays_follow_their_tensors():
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    function = load(lambda x, y: x - y, x, y)
    changes = [
        lambda: x.t_(),  # the same memory, other strides
        lambda: x.t_(),
        lambda: setattr(x, "data", torch.randn(16, 16)),  # other memory
        lambda: x.untyped_storage().copy_(y.untyped_storage()),
    ]
    for change in changes:
        function(x, y)
        change()
        torch.testing.assert_close(function(x, y)[0], x - y)
    unaligned = torch.randn(257)[1:].view(16, 16)  # of which jax makes a copy
    for _ in range(2):
        torch.testing.assert_close(function(unaligned, y)[0], unaligned - y)
        unaligned.neg_()


def test_arrays_do_not_outlive_their_tensors():
    function = load(lambda x: x * 2, torch.randn(16, 16))
    x = torch.randn(16, 16)
    function(x)
    (reader,) = function._readers
    assert reader._last is not None
    del x
    assert reader._last is None


def test_threads_take_the_arrays_of_their_own_tensors():
    inputs = [torch.full((64, 64), float(at)) for at in range(4)]
    function = load(lambda x: x * 2, inputs[0])

    def calls(x: torch.Tensor) -> bool:
        return all(torch.equal(function(x)[0], x * 2) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(calls, inputs))


def test_results_are_memory_of_their_own():
    x = torch.randn(64, 16)
    function = load(lambda x: (x, x * 2, x * 2), x)
    same, first, second = function(x)
    assert len({each.data_ptr() for each in (x, same, first, second)}) == 4
    for each in (same, first, second):
        each.zero_()
    assert x.any()
    torch.testing.assert_close(function(x)[1], x * 2)


def test_results_outlive_calls():
    function = load(lambda x: x * 2, torch.ones(256, 256))
    inputs = [torch.full((256, 256), float(at)) for at in range(8)]
    results = [function(x)[0] for x in inputs]
    assert [int(each[3, 4]) for each in results] == [2 * at for at in range(8)]


@pytest.mark.parametrize("from_host", [False, True])
def test_state_stays_in_its_memory(from_host: bool):
    x = torch.randn(64, 16)
    lowered = lower(Running(), x, output_type="stablehlo", mutation="functional")
    backend = HostCalls(XlaBackend(), torch.device("cpu")) if from_host else "xla"
    caller = lowered.caller(backend=backend)
    places = []
    for _ in range(3):
        caller(x)
        places.append(caller.state.held["sum"].array.unsafe_buffer_pointer())
    assert len(set(places)) == 1
    before = caller.state["sum"]
    kept = before.clone()
    caller(x)
    torch.testing.assert_close(before, kept)  # a copy, which later calls do not write
    assert int(caller.state["count"]) == 4


def test_functions_share_weights(monkeypatch: pytest.MonkeyPatch):
    class Repeated(nn.Module):
        def __init__(self, layer, times):
            super().__init__()
            self.layer, self.times = layer, times

        def forward(self, x):
            for _ in range(self.times):
                x = self.layer(x)
            return x

    layer, x, uploads = nn.Linear(16, 16), torch.randn(4, 16), []
    put = xla_backend.put
    monkeypatch.setattr(xla_backend, "put", lambda jax, place, tensor: uploads.append(1) or put(jax, place, tensor))
    programs = {name: torch.export.export(Repeated(layer, at), (x,)) for at, name in enumerate(("once", "twice"), 1)}
    caller = lower(programs, output_type="stablehlo", weights="external").caller(backend="xla")
    torch.testing.assert_close(caller["once"](x), layer(x))
    torch.testing.assert_close(caller["twice"](x), layer(layer(x)))
    assert len(uploads) == 2
    with torch.no_grad():
        layer.weight.zero_()
    with pytest.raises(UsageError, match="changed in place"):
        caller["once"](x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_dtypes(dtype: torch.dtype):
    x = torch.ones(5, 3, dtype=torch.float32).to(dtype)[:, :2].t()
    (found,) = load(lambda x: x.reshape(-1), x)(x)
    assert found.dtype is dtype
    assert found.to(torch.complex64).sum() == 10


def test_tensors_of_another_device_are_named():
    kinds = TensorKind((torch.float32,), ()), TensorKind((torch.float32,), (2,))
    signature = Signature("main", kinds, (), names=("x", "y"), device=torch.device("cuda", 1), host=False)
    message = r"argument 1 \('y'\) is on cpu, but .* tensors on cuda:1: .*`.to\('cuda:1'\)`"
    with pytest.raises(UsageError, match=message):
        signature.check((torch.tensor(1.0), torch.ones(2)))  # of rank 0, a tensor may be on the CPU


@pytest.mark.parametrize(
    "output_type, options, message",
    [
        ("stablehlo", {"device": "cuda"}, "PyTorch has no device 'cuda' here: it has 0 of 'cuda'"),
        ("stablehlo", {"device": "cuda:x"}, "'cuda:x' names no device"),
        ("tosa", {"device": "cuda"}, "no engine runs tosa on 'cuda': 'xla' can, which takes stablehlo"),
        ("stablehlo", {"device": "cuda", "backend": "jit"}, "'jit' does not run on 'cuda': 'xla' can"),
        ("stablehlo", {"device": "cuda", "backend": XlaBackend()}, "goes with the name of a backend"),
        ("stablehlo", {"device": "abacus"}, "no engine runs on 'abacus': accepted are 'cpu', 'cuda', 'rocm'"),
    ],
)
def test_devices_that_are_not_there(output_type: str, options, message: str):
    lowered = lower(nn.ReLU(), torch.ones(3), output_type=output_type)
    with pytest.raises(UsageError, match=message):
        lowered.caller(**options)


def test_a_platform_that_jax_lacks_is_an_error_before_the_module_is_compiled():
    with pytest.raises(UsageError, match="jax has no platform 'cuda' here: .*pip install 'jax.cuda13.'"):
        XLA_ENGINE.create(BackendOptions(device="cuda"))


def test_verify_takes_a_device():
    lowered = lower(nn.ReLU(), torch.ones(3), output_type="stablehlo")
    with pytest.raises(UsageError, match="PyTorch has no device 'cuda:1' here: it has 0 of 'cuda'"):
        lowered.verify(device="cuda:1")
    with pytest.raises(UsageError, match="'jit' does not run on 'cuda': 'xla' can"):
        lowered.bisect(device="cuda", backend="jit")
