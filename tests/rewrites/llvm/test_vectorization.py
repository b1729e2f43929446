"""Sums in vector registers."""

import math

import pytest
import torch

from fx_importer import lower
from fx_importer.diagnostics.observers import Observer, observing
from fx_importer.llm.checkpoints.gguf_blocks import DECOMPOSITIONS, FORMATS, block_linear
from fx_importer.rewrites.llvm import row_products
from fx_importer.rewrites.llvm.vector_math import replace_functions
from fx_importer.rewrites.llvm.vectorization import vectorize_sums

LANES, _ = row_products._host_registers()
pytestmark = pytest.mark.skipif(not LANES, reason="no vectors")


@pytest.fixture
def vectors():
    """Return a list that gets the number of sums in vectors of each module, whose kernels are verified."""
    found: list[int] = []

    class Vectors(Observer):
        def before_pass(self, name, module):
            if name == replace_functions.name:
                assert module.verify()

        def after_pass(self, name, module):
            if name == vectorize_sums.name:
                found.append(str(module).count("vector.reduction") + str(module).count("vector.store"))

    with observing(Vectors()):
        yield found


def _on_threads(f, *arguments, extra=None):
    caller = lower(f, *arguments, output_type="linalg-on-tensors", extra=extra).caller(backend="jit")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = caller(*arguments)
        torch.set_num_threads(2)
        assert torch.equal(alone, caller(*arguments))
    finally:
        torch.set_num_threads(threads)
    return alone


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("F16", "BF16", "F32")])
def test_products_with_blocks(kind, vectors):
    """Scales of 1, and any other bits; rows that are no multiple of eight."""
    layout = FORMATS[kind]
    torch.manual_seed(0)
    weight = torch.randint(256, (132, 2048 // layout.weights, layout.size), dtype=torch.uint8)
    halves = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(kind, (0,))
    for at in halves:
        weight[..., at], weight[..., at + 1] = 0, 0x3C
    weight, x = weight.flatten(1), torch.randn(3, 2048)
    found = _on_threads(lambda x, weight: block_linear(x, weight, kind, True), x, weight, extra=DECOMPOSITIONS)
    exact = x.double() @ layout.unpacked(weight).double().t()
    assert (found - exact).norm() < 1e-6 * exact.norm()
    assert vectors[0]


SUMS = {
    "rows": (lambda x, y: (x * y).sum(-1), (40, 4096)),
    "one row in five": (lambda x, y: (x * y).sum(-1), (5, 32768)),
    "lanes": (lambda x, y: (x - y * 2).sum(1), (24, 100, 64)),
    "numbers": (lambda x, y: (x * y * torch.arange(x.shape[-1])).sum(-1), (40, 4096)),
    "integers": (lambda x, y: (x * (y.to(torch.int8) & 3).float()).sum(-1), (40, 4096)),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums(name, vectors):
    f, sizes = SUMS[name]
    torch.manual_seed(0)
    x, y = torch.randn(sizes), torch.randn(sizes)
    found = _on_threads(f, x, y)
    exact = f(x.double(), y.double())
    assert (found - exact).norm() < 1e-6 * math.sqrt(math.prod(sizes)) * exact.norm() / math.sqrt(exact.numel())
    assert vectors[0]


def test_what_is_not_in_rows_stays(vectors):
    """A sum down columns, of every other one."""
    x = torch.randn(4096, 41)
    torch.testing.assert_close(_on_threads(lambda x: x[:, ::2].sum(0), x), x[:, ::2].sum(0), rtol=1e-4, atol=1e-4)
    assert vectors == [0]
