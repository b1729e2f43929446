"""Integer programs beside the float models: seconds of a call, of runs that alternate.

python -m benchmarks.quantized_speed                                       # linalg on IREE
python -m benchmarks.quantized_speed --backend jit --models "ViT-tiny"
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.quantized_models import MODELS, built
from fx_importer import StageFailed, lower, quantize
from fx_importer.calls.backend import Loaded
from fx_importer.engines import backend_named
from fx_importer.results.lowered import Lowered

OUTPUT_TYPES = {"iree": "linalg-on-tensors", "jit": "linalg-on-tensors", "xla": "stablehlo"}


class Block(nn.Module):
    """Two products of matrices of 384 by 1,536, as an MLP of MiniLM has them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(384, 1536), nn.Linear(1536, 384)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def _model(name: str) -> tuple[nn.Module, Tensor]:
    if name == "MLP":
        torch.manual_seed(0)
        return Block().eval(), torch.randn(64, 384)
    return built(name)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _loaded(lowered: Lowered, backend: str) -> Loaded | str:
    """Return the function of a program, or why the backend refuses it.

    IREE's runtime cannot free a module while an error is raised, so it is returned.
    """
    try:
        return backend_named(backend).load(lowered.module)
    except StageFailed as error:
        return str(error)[:200]


def compared(name: str, backend: str, rounds: int) -> str:
    """Return a line with the medians of a call of both programs, and the ratio of float's to integers'."""
    model, x = _model(name)
    output_type = OUTPUT_TYPES[backend]
    quantized = quantize(model, [x], integer_io=True, observer="minmax")
    (taken,) = quantized.meta["input_scales"]
    inputs = x if taken is None else (x / taken[0] + taken[1]).round().clamp(-128, 127).to(torch.int8)
    programs: tuple[tuple[Lowered, Tensor], ...] = (
        (lower(model, x, output_type=output_type), x),
        (lower(quantized, inputs, output_type=output_type, quantized="integer"), inputs),
    )
    loaded = [_loaded(each, backend) for each, _ in programs]
    refused = [
        f"{kind} refused: {each}"
        for kind, each in zip(("float", "integers"), loaded, strict=True)
        if isinstance(each, str)
    ]
    if refused:
        return f"{name} on {backend}: {', '.join(refused)}"
    calls = [(each, given) for each, (_, given) in zip(loaded, programs, strict=True) if not isinstance(each, str)]
    for call, given in calls:
        call(given)
    times = [[_seconds(functools.partial(call, given)) for call, given in calls] for _ in range(rounds)]
    of_float, of_integers = (statistics.median(each) * 1e3 for each in zip(*times, strict=True))
    return f"{name} on {backend}: float {of_float:.2f} ms, integers {of_integers:.2f} ms: {of_float / of_integers:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=list(OUTPUT_TYPES), default="iree")
    names = ["MLP", "MobileNetV2 0.35", "ViT-tiny", "ResNet-18"]
    parser.add_argument("--models", nargs="*", default=names, choices=["MLP", *MODELS], help="default: four")
    parser.add_argument("--rounds", type=int, default=30, help="calls of each")
    chosen = parser.parse_args()
    for name in chosen.models:
        print(compared(name, chosen.backend, chosen.rounds), flush=True)


if __name__ == "__main__":
    main()
