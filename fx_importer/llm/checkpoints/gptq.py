"""Models quantized by GPTQ or AWQ. Their weights stay packed in 32-bit words in the user's files.

A weight is ``scales * (values - zeros)``, in groups along K. The layouts are as AutoGPTQ and AutoAWQ write them;
transformers' ``quantization_config`` identifies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fx_importer.errors import UsageError
from fx_importer.llm.architectures.cache_layers import zeros
from fx_importer.llm.checkpoints.checkpoint_tensors import load_checkpoint
from fx_importer.llm.checkpoints.packed_weights import PackedLinear, frozen

_AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, out of eight, that each 4-bit field of a word holds, starting at the lowest bits."""
_BITS = (2, 4, 8)


@dataclass(frozen=True)
class WordFormat:
    """The storage format of weights that a model's ``quantization_config`` describes."""

    method: str
    """``"gptq"``, which packs words along K, or ``"awq"``, which packs them along N."""
    bits: int = 4
    zeros_less_one: bool = False
    """Whether words hold zeros - 1, as AutoGPTQ writes them."""
    ordered: bool = False
    """Whether rows are grouped by activations (``desc_act``), in the order of ``g_idx``."""
    group: int | None = None
    """The number of values along K in a group, -1 for all of them; None if the configuration does not state it."""

    @property
    def values(self) -> int:
        """The number of values in a word."""
        return 32 // self.bits

    @property
    def shifts(self) -> Tensor:
        """The bit offset of each value in a word, int32 [values]."""
        if self.method == "awq":
            return torch.tensor([4 * _AWQ_COLUMNS.index(column) for column in range(8)], dtype=torch.int32)
        return torch.arange(0, 32, self.bits, dtype=torch.int32)

    def unpacked(self, words: Tensor, shifts: Tensor) -> Tensor:
        """Return the values in the int32 ``words`` at the bit offsets ``shifts``."""
        return (words >> shifts) & (2**self.bits - 1)

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> WordFormat:
        """Return the format that a ``quantization_config`` describes.

        Raises:
            UsageError: if the method or an option is not supported.
        """
        method, bits = config.get("quant_method"), config.get("bits", config.get("w_bit", 4))
        group = config.get("group_size", config.get("q_group_size"))
        if group is not None and (type(group) is not int or (group < 1 and group != -1)):
            raise UsageError(
                f"the model's quantization_config has group_size={group!r}: accepted are 1 or more, and -1"
            )
        version = str(config.get("checkpoint_format") or config.get("format") or config.get("version") or "").lower()
        if method == "gptq" and bits in _BITS and version in ("", "gptq", "gptq_v2"):
            return cls(method, bits, version != "gptq_v2", bool(config.get("desc_act")), group)
        if method == "awq" and bits == 4 and version in ("", "gemm") and config.get("zero_point", True):
            return cls(method, group=group)
        raise UsageError(
            f"the model is quantized by {method!r} with bits={bits!r}, format={version!r}: accepted are gptq in 2, 4 "
            "or 8 bits of the formats gptq and gptq_v2, and awq in 4 bits with zero points of the version gemm"
        )


class WordLinear(PackedLinear):
    """A linear layer whose weights are packed in words.

    Args:
        qweight: int32 [K / values, N] for GPTQ, [K, N / values] for AWQ.
        qzeros: int32 [K / group, N / values].
        scales: [K / group, N].
        bias: [N], or None.
        layout: the format of the words.
        order: int64 [K], the input index for each row of the weight; None if the rows are in order.
    """

    def __init__(
        self,
        qweight: Tensor,
        qzeros: Tensor,
        scales: Tensor,
        bias: Any,
        layout: WordFormat,
        order: Tensor | None = None,
    ):
        super().__init__(scales.shape[1], bias)
        self.qweight, self.qzeros, self.scales = frozen(qweight), frozen(qzeros), frozen(scales)
        self.order = None if order is None else frozen(order)
        self._layout = layout

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``, in the dtype of ``x``."""
        return super().forward(x if self.order is None else x.index_select(-1, self.order))

    def _fused(self, x: Tensor) -> Tensor:
        values, scales = self._values(slice(None))
        inputs = values.dim() - scales.dim() + 1  # the number of dimensions that make up K
        x = x.unflatten(-1, values.shape[:inputs])
        x = x.reshape(*x.shape, *(1,) * (values.dim() - inputs))
        first = -values.dim() + 1
        of_groups = (x * values).sum(tuple(range(first, first + inputs - 1))) * scales
        return of_groups.sum(-scales.dim()).flatten(1 - scales.dim())

    def _unpacked(self, x: Tensor, rows: slice) -> Tensor:
        values, scales = self._values(rows)
        scales = scales.reshape(scales.shape[0], *(1,) * (values.dim() - scales.dim()), *scales.shape[1:])
        return x @ (values * scales).reshape(x.shape[-1], -1)

    def _values(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return values minus zeros, float32 [K / group, ..., *n], and scales, [K / group, *n], for ``rows`` of N.

        The dimensions in between make up a group; n is one dimension for GPTQ and two for AWQ.
        """
        shifts, groups = self._layout.shifts, self.scales.shape[0]
        scales, words = self.scales[:, rows].float(), _of_words(rows, self._layout.values)
        zeros = self._layout.unpacked(self.qzeros[:, words].unsqueeze(-1), shifts)
        if self._layout.method == "awq":
            packed = self.qweight[:, words].unflatten(0, (groups, -1)).unsqueeze(-1)
            values = self._layout.unpacked(packed, shifts) - zeros.unsqueeze(1)
            return values.float(), scales.unflatten(1, (-1, self._layout.values))
        zeros = zeros.flatten(1)
        if self._layout.zeros_less_one:
            zeros = (zeros + 1) & (2**self._layout.bits - 1)
        packed = self.qweight[:, rows].unflatten(0, (groups, -1)).unsqueeze(2)
        values = self._layout.unpacked(packed, shifts.unsqueeze(1)) - zeros.unsqueeze(1).unsqueeze(1)
        return values.float(), scales


def _of_words(rows: slice, values: int) -> slice:
    """Return the slice of words that holds ``rows``, whose bounds are multiples of ``values``."""
    return slice(*(None if bound is None else bound // values for bound in (rows.start, rows.stop)))


def load_words(
    model_class: Any, config: Any, stored: Mapping[str, Tensor], dtype: torch.dtype | None, path: Path
) -> Any:
    """Return the model of ``config`` with the tensors ``stored``. Its quantized layers become `WordLinear`.

    Args:
        model_class: the transformers class of the model.
        config: a configuration with a ``quantization_config``, which is removed.
        stored: tensors by name; a quantized layer has ``qweight``, ``qzeros``, ``scales`` and, for GPTQ, ``g_idx``.
        dtype: the dtype that the model computes in; by default the dtype in ``config``, or of the other tensors.
        path: where the tensors come from, for errors.

    Raises:
        UsageError: if the method is not supported, or tensors are missing, unknown to the model, or of another shape
            or dtype.
    """
    layout = WordFormat.of_config(config.quantization_config)
    del config.quantization_config
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in stored if name.endswith(_NEEDED)))
    parts = {layer: {part: stored.get(f"{layer}.{part}") for part in _PARTS} for layer in layers}
    packed = {f"{layer}.{part}" for layer in layers for part in _PARTS}
    state = {name: tensor for name, tensor in stored.items() if name not in packed}
    floats = (tensor.dtype for tensor in state.values() if tensor.is_floating_point())
    chosen: torch.dtype = dtype or config.dtype or next(floats, torch.float16)
    for layer, part in parts.items():
        state[f"{layer}.weight"] = zeros(_shape(layer, part, layout), chosen)  # replaced below
    model = load_checkpoint(model_class, config, state, chosen, path)
    for layer, part in parts.items():
        old = model.get_submodule(layer)
        if type(old) is not torch.nn.Linear:
            raise UsageError(f"'{layer}' is quantized, and is a {type(old).__name__}: accepted are linear layers")
        model.set_submodule(layer, _layer(layer, part, old.bias, layout))
    return model


_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_NEEDED = (".qweight", ".qzeros", ".scales")


def _shape(path: str, parts: Mapping[str, Tensor | None], layout: WordFormat) -> tuple[int, int]:
    """Return the sizes N, K of the weight. Raises `UsageError` if the tensors are not a valid quantized weight."""
    words, zeros_, scales = parts["qweight"], parts["qzeros"], parts["scales"]
    if missing := [f"'{path}{part}'" for part in _NEEDED if parts[part[1:]] is None]:
        raise UsageError(f"'{path}' is quantized, and lacks {', '.join(missing)}")
    assert words is not None
    assert zeros_ is not None
    assert scales is not None
    if {words.dim(), zeros_.dim(), scales.dim()} != {2}:
        raise UsageError(f"'{path}' is quantized, and its {', '.join(_PARTS[:3])} are not all matrices")
    groups, rows = scales.shape
    columns = words.shape[0] * (layout.values if layout.method == "gptq" else 1)
    wide = rows if layout.method == "gptq" else rows // layout.values
    fits = groups > 0 and words.shape[1:] == (wide,) and zeros_.shape == (groups, rows // layout.values)
    types = {words.dtype, zeros_.dtype} == {torch.int32} and scales.is_floating_point()
    if not fits or not types or rows % layout.values or words.shape[0] % groups:
        kinds = ", ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in (words, zeros_, scales))
        raise UsageError(f"'{path}' has tensors that are not those of {layout.bits} bits in groups: {kinds}")
    if layout.group is not None and groups != (1 if layout.group == -1 else -(-columns // layout.group)):
        raise UsageError(
            f"'{path}' has {groups} groups of {columns // groups} values, and the model's quantization_config states "
            f"group_size={layout.group}"
        )
    order = parts["g_idx"]
    if order is None and layout.ordered and groups > 1:
        raise UsageError(f"'{path}.g_idx' is missing: the model is quantized with desc_act, which groups rows by it")
    if order is not None and (order.is_floating_point() or order.shape != (columns,)):
        raise UsageError(f"'{path}.g_idx' is {order.dtype} {list(order.shape)}: accepted are [{columns}] integers")
    return rows, columns


def _layer(path: str, parts: Mapping[str, Tensor | None], bias: Any, layout: WordFormat) -> WordLinear:
    words, zeros_, scales, groups_of = (parts[part] for part in _PARTS)
    assert words is not None
    assert zeros_ is not None
    assert scales is not None
    order = None
    if groups_of is not None and (groups := groups_of.long()).diff().lt(0).any():  # activation order (desc_act)
        order = groups.argsort(stable=True)
        words = _reordered(words, order, layout)
        groups_of = groups[order]
    if groups_of is not None:
        size = len(groups_of) // scales.shape[0]
        if not torch.equal(groups_of.long(), torch.arange(len(groups_of)) // size):
            raise UsageError(f"'{path}' has groups of different sizes (g_idx), which fx_importer.llm does not handle")
    return WordLinear(words, zeros_, scales, bias, layout, order)


def _reordered(words: Tensor, order: Tensor, layout: WordFormat) -> Tensor:
    """Return GPTQ ``words`` with the weight's rows permuted by ``order``, so that groups are consecutive."""
    shifts = layout.shifts.unsqueeze(1)
    values = layout.unpacked(words.unsqueeze(1), shifts).flatten(0, 1)[order]
    return (values.unflatten(0, (-1, layout.values)) << shifts).sum(1, dtype=torch.int32)
