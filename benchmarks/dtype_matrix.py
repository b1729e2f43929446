"""Check every dtype in every role and output type: the result is exact, or an error names the dtype.

python -m benchmarks.dtype_matrix            # print the table of docs/dtypes.md
python -m benchmarks.dtype_matrix --write    # renew it there
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.rows import DOCS, renew, section_of
from fx_importer import FxImporterError, OutputType, lower
from fx_importer.importing.types import ELEMENT_TYPES
from fx_importer.mlir.dtypes import DTYPES

PAGE = DOCS / "dtypes.md"

ALL = (*ELEMENT_TYPES, torch.float4_e2m1fn_x2)
_RUN = {dtype for dtypes in DTYPES.values() for dtype in dtypes}


def sample(dtype: torch.dtype) -> Tensor:
    """Return values of ``dtype`` with its largest ones among them: (2, 3)."""
    if dtype is torch.float4_e2m1fn_x2:
        return torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(dtype)
    if dtype is torch.bool:
        return torch.tensor([[True, False, True], [False, False, True]])
    if dtype.is_complex:
        return torch.complex(torch.arange(6.0), 1 - torch.arange(6.0)).reshape(2, 3).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor([[1.0, 2.0, 0.5], [4.0, 8.0, 16.0]]).to(dtype)
    bits = torch.tensor([[-1, 1, 2], [3, -(2 ** (8 * dtype.itemsize - 1)), 7]])
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return bits.to(signed).view(dtype)


def number(dtype: torch.dtype) -> complex:
    return 2j if dtype.is_complex else 3


ROLES: dict[str, Callable[[torch.dtype, Tensor, Tensor], Any]] = {
    "argument": lambda dtype, x, literal: x.t(),
    "literal": lambda dtype, x, literal: literal.t(),
    "fill": lambda dtype, x, literal: torch.full((2,), number(dtype), dtype=dtype),
    "arithmetic": lambda dtype, x, literal: x + number(dtype),
    "conversion to": lambda dtype, x, literal: torch.tensor([0.0, 1.0, 3.0, 2.5]).to(dtype),
    "conversion from": lambda dtype, x, literal: x.to(torch.complex64 if dtype.is_complex else torch.float32),
}
"""``literal`` is a buffer of the model."""


class Model(torch.nn.Module):
    literal: Tensor

    def __init__(self, dtype: torch.dtype, roles: tuple[str, ...]):
        super().__init__()
        self.register_buffer("literal", sample(dtype).flip(0) if dtype.itemsize > 1 else sample(dtype))
        self.dtype, self.roles = dtype, roles

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(ROLES[role](self.dtype, x, self.literal) for role in self.roles)


@dataclass(frozen=True)
class Cell:
    """A dtype in one output type: a verdict for each role that eager supports."""

    verdicts: dict[str, str]

    def __str__(self) -> str:
        kinds = dict.fromkeys(self.verdicts.values())
        if len(kinds) == 1:
            return next(iter(kinds))
        most = max(kinds, key=list(self.verdicts.values()).count)
        others = [kind for kind in kinds if kind != most]
        return "; ".join(
            [most, *(f"{', '.join(r for r, v in self.verdicts.items() if v == kind)}: {kind}" for kind in others)]
        )


def cell(dtype: torch.dtype, output_type: OutputType) -> Cell:
    """Check ``dtype`` in ``output_type``: all roles at once, and one by one if that is not exact."""
    roles = tuple(role for role in ROLES if _eager_supports(dtype, role))
    together = verdict(dtype, roles, output_type)
    if together in ("exact", "exact, not run"):
        return Cell(dict.fromkeys(roles, together))
    return Cell({role: verdict(dtype, (role,), output_type) for role in roles})


def verdict(dtype: torch.dtype, roles: tuple[str, ...], output_type: OutputType) -> str:
    """Return ``exact``, ``exact, not run``, or ``unsupported``; anything else describes a bug."""
    model, x = Model(dtype, roles), sample(dtype)
    try:
        lowered = lower(model, x, output_type=output_type)
    except FxImporterError as error:
        return "unsupported" if str(dtype) in str(error) else f"FAULT: the error does not name {dtype}: {error}"[:200]
    wanted = _spelled(dtype, output_type)
    header = next(line for line in str(lowered.module).splitlines() if "func.func" in line)
    if wanted not in header:
        return f"FAULT: no {wanted} in {header.strip()}"
    if output_type is not OutputType.LINALG_ON_TENSORS:
        return "exact"
    if dtype not in _RUN:
        return "exact, not run"
    try:
        results = lowered.run(x)
    except FxImporterError:
        return "exact, not run"
    for ours, eager in zip(results, model(x), strict=True):
        if ours.dtype != eager.dtype or not torch.equal(_bits(ours), _bits(eager)):
            return f"FAULT: {ours} is not {eager}"
    return "exact"


def _eager_supports(dtype: torch.dtype, role: str) -> bool:
    try:
        Model(dtype, (role,))(sample(dtype))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _spelled(dtype: torch.dtype, output_type: OutputType) -> str:
    element = ELEMENT_TYPES[dtype]
    if output_type in (OutputType.RAW, OutputType.TORCH):
        return f",{element}>"
    if output_type is OutputType.TOSA and dtype.is_complex:
        return f"x2x{ELEMENT_TYPES[dtype.to_real()]}>"
    signless = element.replace("si", "i")
    return f"x{signless if output_type is OutputType.STABLEHLO else signless.replace('u', '')}>"


def _bits(tensor: Tensor) -> Tensor:
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.contiguous().view(torch.uint8)


def rows() -> Iterator[str]:
    names = [each.value for each in OutputType]
    yield f"| dtype | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for dtype in ALL:
        cells = " | ".join(str(cell(dtype, each)) for each in OutputType)
        yield f"| `{str(dtype).removeprefix('torch.')}` | {cells} |"


def recorded() -> dict[tuple[str, str], str]:
    """Return the cells that the page shows, by dtype and output type."""
    lines = section_of(PAGE, "matrix").splitlines()
    split = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    header, _, *body = split
    return {(row[0].strip("`"), name): text for row in body for name, text in zip(header[1:], row[1:], strict=True)}


if __name__ == "__main__":
    table = "".join(f"{row}\n" for row in rows())
    if "--write" in sys.argv:
        renew(PAGE, "matrix", table)
    else:
        print(table)
