"""Check on a device what this package does there: callers, streams, errors, ``torch.compile``, and the cost of a call.

    python -m benchmarks.gpu.check --device cuda --json checks.json
    python -m benchmarks.gpu.check --device cpu                        # the same code on XLA's CPU device

It needs this package with torch-mlir, jax with the plug-in of the device, and Triton for the kernel. Where nothing can
be installed, a folder on ``PYTHONPATH`` does: the wheel of torch-mlir without its tools, packed by xz, has 45 MB.
PyTorch 2.11 runs all of it, though `pyproject.toml` asks for 2.12.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.run import file_as_module, synchronize
from fx_importer import UsageError, lower

TOLERANCE = 1e-3
"""Of results, relative to the largest: products of float32 may have other orders, and convolutions TF32."""


class Add(nn.Module):
    """One addition."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + y


class Sums(nn.Module):
    """A module with state."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to the state, and return twice of it."""
        self.total.add_(self.layer(x))
        return self.total * 2


class OnTwoDevices(nn.Module):
    """A layer on the host and one on the device."""

    def __init__(self, device: str):
        super().__init__()
        self.first, self.second, self.device = nn.Linear(8, 8), nn.Linear(8, 8).to(device), device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result, on the device."""
        return self.second(self.first(x).to(self.device)).relu()


def perceptron() -> nn.Module:
    """Return a model of two layers."""
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))


def convolutional() -> nn.Module:
    """Return a model with a batch normalization."""
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 5))


def encoder() -> nn.Module:
    """Return a layer of a transformer."""
    return nn.TransformerEncoderLayer(256, 4, 512, 0.0, batch_first=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (16, 64)),
    "convolutional": (convolutional, (4, 3, 32, 32)),
    "encoder": (encoder, (4, 64, 256)),
}


class Checks:
    """The checks of a device. Each returns facts, and raises if something is wrong."""

    def __init__(self, device: str):
        self.device = device
        self.place: dict[str, Any] = {"backend": "xla"} if device == "cpu" else {"device": device}
        self.compile: dict[str, Any] = {"engine": "xla"} if device == "cpu" else {}

    def caller(self, model: Any, *inputs: torch.Tensor) -> Any:
        """Return the functions of ``model`` on the device."""
        options: Any = {"weights": "external", "mutation": "functional"}
        return lower(model, *inputs, output_type="stablehlo", **options).caller(**self.place)

    def calls(self) -> dict[str, Any]:
        """A model, and one with state, equal eager PyTorch."""
        model, x = perceptron().eval().to(self.device), torch.randn(16, 64, device=self.device)
        sums, y = Sums().to(self.device), torch.randn(8, device=self.device)
        own = self.caller(sums, y)
        with torch.no_grad():
            error = _error(self.caller(model, x)(x), model(x))
            return {"error": error, "with state": max(_error(own(y), sums(y)) for _ in range(3))}

    def streams(self) -> dict[str, Any]:
        """Calls behind pending work on a stream, and before a write to their input, read what the stream has made."""
        x = torch.zeros(16, 16, device=self.device)
        caller, wrong = self.caller(Add(), x, x), 0
        for at in range(60 if self.device != "cpu" else 0):
            stream = torch.cuda.Stream(self.device) if at % 2 else torch.cuda.current_stream(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                torch.cuda._sleep(3_000_000)
                result = caller(x.fill_(at), x)
                x.fill_(-1)
                wrong += int((result != 2 * at).any())
            stream.synchronize()
        assert not wrong, f"{wrong} results are wrong"
        return {"wrong": wrong}

    def refusals(self) -> dict[str, Any]:
        """A tensor of the host, and a device that is not there, are errors by name."""
        if self.device == "cpu":
            return {}
        model, x = perceptron().eval().to(self.device), torch.randn(16, 64, device=self.device)
        caller, texts = self.caller(model, x), dict[str, Any]()
        lowered = lower(model, x, output_type="stablehlo")
        for name, call in {"cpu": lambda: caller(x.cpu()), "cuda:63": lambda: lowered.caller(device="cuda:63")}.items():
            try:
                call()
            except UsageError as error:
                texts[name] = str(error)
        assert len(texts) == 2, texts
        return texts

    def compiled(self, name: str, training: bool) -> dict[str, Any]:
        """``torch.compile`` equals eager PyTorch, in inference or in three steps of training."""
        make, shape = MODELS[name]
        model, x = make().to(self.device).train(training), torch.randn(*shape, device=self.device)
        other = copy.deepcopy(model)
        compiled, said = self._compiled(model)

        optimizers = {owner: torch.optim.SGD(owner.parameters(), 0.01) for owner in (model, other)}

        def step(function: Any, owner: nn.Module) -> None:
            optimizers[owner].zero_grad()
            function(x).square().mean().backward()
            optimizers[owner].step()

        with torch.set_grad_enabled(training):
            if not training:
                facts = {"error": _error(compiled(x), other(x))}
                return facts | self._times(lambda: compiled(x), lambda: other(x)) | {"warnings": said}
            for _ in range(3):
                step(compiled, model)
                step(other, other)
            error = max(map(_error, model.parameters(), other.parameters()))
            times = self._times(lambda: step(compiled, model), lambda: step(other, other))
            return {"error": error} | times | {"warnings": said}

    def sizes(self) -> dict[str, Any]:
        """``torch.compile`` with dynamic sizes equals eager PyTorch."""
        model = perceptron().eval().to(self.device)
        compiled, said = self._compiled(model, dynamic=True)
        with torch.no_grad():
            inputs = [torch.randn(rows, 64, device=self.device) for rows in (3, 5, 9)]
            return {"error": max(_error(compiled(x), model(x)) for x in inputs), "warnings": said}

    def two_devices(self) -> dict[str, Any]:
        """``torch.compile`` of a model with weights on two devices equals eager PyTorch."""
        model, x = OnTwoDevices(self.device), torch.randn(2, 8)
        compiled, said = self._compiled(model)
        with torch.no_grad():
            return {"error": _error(compiled(x), model(x)), "warnings": said}

    def triton(self) -> dict[str, Any]:
        """Triton launches its kernel between two parts of a compiled graph."""
        if self.device == "cpu":
            return {}
        from benchmarks.gpu.kernels import vector_add

        first, last = (nn.Linear(64, 64).to(self.device) for _ in range(2))
        x = torch.randn(32, 64, device=self.device)

        def model(x: torch.Tensor) -> torch.Tensor:
            y = first(x).relu()
            return last(vector_add(y, x)) + y

        compiled, said = self._compiled(model)
        with torch.no_grad():
            error = _error(compiled(x), model(x))
            return {"error": error} | self._times(lambda: compiled(x), lambda: model(x)) | {"warnings": said}

    def cost(self) -> dict[str, Any]:
        """Return microseconds of a call of one addition: jax's own, ours, with tensors that are passed again or not."""
        import jax

        x, y = (torch.randn(16, 16, device=self.device) for _ in range(2))
        lowered = lower(Add(), x, y, output_type="stablehlo", weights="external")
        with tempfile.TemporaryDirectory() as folder:
            lowered.save_bundle(folder, platform=self.device.partition(":")[0])
            loader = file_as_module(Path(folder) / "stablehlo_loader.py")
            bundle = loader.load(Path(folder) / "model.stablehlo", device=self.device)
        caller, function = lowered.caller(**self.place), jax.jit(lambda x, y: x + y)
        arrays, new = [jax.dlpack.from_dlpack(one) for one in (x, y)], [torch.randn_like(x) for _ in range(64)]
        place = iter(range(10**9))

        def other(call: Any) -> Any:
            at = next(place)
            return call(new[at % 64], new[(at + 1) % 64])

        calls = {
            "eager": lambda: x + y,
            "jax": lambda: function(*arrays),
            "bundle": lambda: bundle(x, y),
            "caller": lambda: caller(x, y),
            "bundle, other tensors": lambda: other(bundle),
            "caller, other tensors": lambda: other(caller),
        }
        return {name: self._microseconds(call) for name, call in calls.items()}

    def _compiled(self, model: Any, **options: Any) -> tuple[Any, list[str]]:
        """Return the compiled model, and a list that gets the warnings of its compilation."""
        torch._dynamo.reset()
        compiled, said, first = torch.compile(model, backend="fx_importer", options=self.compile, **options), [], True

        def call(*inputs: Any) -> Any:
            nonlocal first
            if not first:
                return compiled(*inputs)
            first = False
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = compiled(*inputs)
            said.extend(str(one.message)[:200] for one in caught if "fx_importer" in str(one.message))
            return result

        return call, said

    def _times(self, ours: Callable[[], Any], eager: Callable[[], Any]) -> dict[str, Any]:
        return {"ours, us": self._microseconds(ours, 30), "eager, us": self._microseconds(eager, 30)}

    def _microseconds(self, call: Callable[[], Any], count: int = 400) -> float:
        """Return the least mean among three turns of ``count`` calls, between which the host does not wait."""
        best = float("inf")
        for turn in range(4):
            start = time.perf_counter()
            for _ in range(count):
                call()
            synchronize(self.device)
            if turn:  # the first one warms up
                best = min(best, (time.perf_counter() - start) / count)
        return round(1e6 * best, 1)


def _error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest value. Raise if it is above `TOLERANCE`."""
    error = ((result - expected).abs().max() / expected.abs().max()).item()
    assert error <= TOLERANCE, f"{error:.1e} from eager PyTorch"
    return error


def main() -> int:
    """Run the checks; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", help="names of checks")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    checks = Checks(arguments.device)
    all_checks: dict[str, Callable[[], dict[str, Any]]] = {
        name: getattr(checks, name)
        for name in ("calls", "cost", "streams", "refusals", "sizes", "two_devices", "triton")
    }
    for name in MODELS:
        for training in (False, True):
            key = f"{name} training" if training else name
            all_checks[key] = lambda name=name, training=training: checks.compiled(name, training)
    rows, failed = dict[str, Any](), 0
    torch.manual_seed(0)
    for name in arguments.only or all_checks:
        try:
            rows[name] = all_checks[name]()
        except Exception as error:  # the row says what failed
            rows[name], failed = {"failed": f"{type(error).__name__}: {error}"[:1000]}, failed + 1
        print(name, json.dumps(rows[name]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps({"device": arguments.device, "rows": rows}, indent=1))
    return failed


if __name__ == "__main__":
    sys.exit(main())
