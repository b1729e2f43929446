"""StableHLO's portable artifact, loaded by the wheel and by XLA, agrees with eager."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

from fx_importer import UsageError, lower
from fx_importer.engines import backend_named
from fx_importer.mlir.bindings import func_d, ir, load_dialects, new_context, stablehlo_d

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int8, torch.int64, torch.uint8]
needs_xla = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="the extra 'xla' is not installed")


def name_of(dtype: torch.dtype) -> str:
    return f"in_{dtype}".replace("torch.", "")


class Weights(nn.Module):
    """Of many dtypes; large, small, empty, and splat."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)
        self.same = nn.Buffer(torch.full((300,), 2.5))
        self.empty = nn.Buffer(torch.empty(0, 3))
        self.spectrum = nn.Buffer(torch.randn(4, dtype=torch.complex64))
        for dtype in DTYPES:
            values = torch.arange(1, 1 + 6 * dtype.itemsize, dtype=torch.uint8)
            held = (values % 2).bool() if dtype is torch.bool else values.view(dtype)
            self.register_buffer(name_of(dtype), held.reshape(2, 3).clone())

    def forward(self, x):
        held = [getattr(self, name_of(dtype)) for dtype in DTYPES]
        return self.linear(x), self.same * 2, self.empty, self.spectrum, *(each.mT for each in held)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Weights()


@pytest.fixture(scope="module")
def lowered(model):
    return lower(model, torch.ones(2, 24), output_type="stablehlo", dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))


def read(path: Path) -> ir.Module:
    context = new_context()
    load_dialects(context)
    return stablehlo_d.deserialize_portable_artifact(context, path.read_bytes())


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        one = one.view(other.dtype)
        assert one.shape == other.shape
        if other.shape[-1] == 16:
            torch.testing.assert_close(one, other)
        else:  # only moved: any bit pattern, including NaNs
            assert torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)))


@pytest.mark.parametrize("backend", ["stablehlo", pytest.param("xla", marks=needs_xla)])
@pytest.mark.parametrize("version", ["current", "minimum"])
@torch.no_grad()
def test_weights_inline(lowered, model, tmp_path, backend, version):
    lowered.save_artifact(tmp_path / "m.stablehlo", version)
    module = read(tmp_path / "m.stablehlo")
    assert "dense_resource" not in str(module)
    x = torch.randn(3, 24)
    same(backend_named(backend).load(module)(x), model(x))


@torch.no_grad()
def test_weights_as_arguments(lowered, model, tmp_path):
    lowered.save_artifact(tmp_path / "m.stablehlo", weights="arguments")
    module = read(tmp_path / "m.stablehlo")
    (function,) = (op for op in module.body if isinstance(op, func_d.FuncOp))
    attributes = [ir.DictAttr(each) for each in ir.ArrayAttr(function.attributes["arg_attrs"])]
    assert ir.StringAttr(attributes[0]["fx_importer.name"]).value == "x"
    names = [ir.StringAttr(each["fx_importer.constant"]).value for each in attributes[1:]]
    assert set(names) <= set(lowered.manifest.constants)
    assert "linear.weight" in names
    x = torch.randn(3, 24)
    same(backend_named("stablehlo").load(module)(x, *(model.state_dict()[name] for name in names)), model(x))


def test_suffix_selects_the_artifact(lowered, tmp_path):
    lowered.save(tmp_path / "m.stablehlo")
    assert (tmp_path / "m.stablehlo").read_bytes().startswith(b"ML\xefR")
    assert b"StableHLO_v1." in (tmp_path / "m.stablehlo").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["m.stablehlo"]


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"version": "0.1.0"}, "no StableHLO version '0.1.0': from 0.9.0 to .*, or current, week-4, week-12, minimum"),
        ({"version": "new"}, "no StableHLO version 'new'"),
        ({"weights": "apart"}, "unknown weights 'apart': accepted are 'inline', 'arguments'"),
    ],
)
def test_invalid_options(lowered, tmp_path, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        lowered.save_artifact(tmp_path / "m.stablehlo", **options)
    assert not list(tmp_path.iterdir())


def test_stablehlo_only(tmp_path):
    with pytest.raises(UsageError, match="a portable artifact holds StableHLO, but the module is raw"):
        lower(nn.ReLU(), torch.ones(2)).save(tmp_path / "m.stablehlo")
    assert not list(tmp_path.iterdir())
