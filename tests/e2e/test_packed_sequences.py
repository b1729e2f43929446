"""Packed sequences: their lengths are assumptions, and results are eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fx_importer import lower
from fx_importer.errors import AssumptionError, AssumptionWarning, ExportError

X, LENGTHS = torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 5, 2])


class Packed(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(3, 4, **options)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed, state = self.rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(packed, total_length=7, padding_value=-1.0), state, packed.data


@pytest.mark.parametrize(
    ("output_type", "kind", "options"),
    [
        ("linalg-on-tensors", nn.LSTM, {"num_layers": 2, "bidirectional": True, "proj_size": 2}),
        ("tosa", nn.GRU, {}),
        ("stablehlo", nn.RNN, {"bidirectional": True}),
    ],
)
def test_lengths_are_assumed_in_any_order(output_type: str, kind: Any, options: Any) -> None:
    model = Packed(kind, **options).eval()
    with pytest.warns(AssumptionWarning, match="_pack_padded_sequence.*` is 5"):
        lowered = lower(model, X, LENGTHS, output_type=output_type, narrow_integers=output_type == "tosa")
    caller = lowered.caller(backend="jit")
    for lengths in (LENGTHS, LENGTHS.flip(0).roll(1)):
        torch.testing.assert_close(caller(X, lengths), model(X, lengths))
    with pytest.raises(AssumptionError, match="is 2, .*it is not for these inputs"):
        caller(X, LENGTHS + torch.tensor([1, 0, 0]))


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        batch = packed.batch_sizes[0].item()
        return self.rnn(packed, torch.ones(1, batch, 4))[0].data * batch  # type: ignore[arg-type]


def test_a_batch_size_is_a_size() -> None:
    model = Sized().eval()
    with pytest.warns(AssumptionWarning):
        lowered = lower(model, X, LENGTHS, output_type="linalg-on-tensors")
    torch.testing.assert_close(lowered(X, LENGTHS.flip(0)), model(X, LENGTHS.flip(0)))


class Indexed(nn.Module):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths)
        return packed.data[: int(packed.batch_sizes[self.step])]


@pytest.mark.parametrize(("step", "lengths"), [(0, [5, 3]), (7, [5, 3, 2])], ids=["few lengths", "step"])
def test_captures_refuse_what_torch_refuses(step: int, lengths: list[int]) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        Indexed(step)(X, torch.tensor(lengths))
    with pytest.raises(ExportError):
        lower(Indexed(step), X, torch.tensor(lengths), output_type="raw")
