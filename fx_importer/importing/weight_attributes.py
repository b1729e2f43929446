"""Tensors as attributes, without copying them.

MLIR shares a parameter's memory: the context keeps the tensor alive, and later in-place changes to it are visible in
the module. Strided views are made contiguous first. Tensors of one repeated value become splats.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from fx_importer.fx_graph.programs import storage_view_key
from fx_importer.importing.types import TypeCache
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.elided_weights import HandleScope, WeightHandle
from fx_importer.mlir.resources import elided_resource, resource
from fx_importer.mlir.tensor_elements import as_array, missing_values

INLINE_ELEMENTS = 64
"""Largest number of elements of an unnamed constant that becomes a ``dense`` attribute, which can be folded."""


class UnimportableTensor(Exception):
    """A tensor without memory, or of a kind that attributes cannot hold."""


class TensorAttributes:
    """Cache of the tensor attributes of one context. Tensors with the same memory, shape and dtype share one."""

    def __init__(self, context: ir.Context, types: TypeCache):
        self._context = context
        self._types = types
        # Keeps the tensor alive as long as its address is a key.
        self._known: dict[object, tuple[torch.Tensor, ir.Attribute]] = {}
        self._named: dict[str, tuple[torch.Tensor, ir.Attribute]] = {}
        self.elided: Mapping[object, int] = {}
        """The numbers of tensors that become weight handles, by `storage_view_key` and name, and by key alone."""
        self._external: dict[str, tuple[torch.Tensor, ir.Attribute]] = {}

    def attribute(self, tensor: torch.Tensor, name: str | None) -> ir.Attribute:
        """Return the attribute that holds ``tensor``: a splat, a short ``dense``, or a resource called ``name``.

        Raises:
            UnimportableTensor: for fake, meta, sparse and quantized tensors.
            UnknownDtype: for a dtype that the torch dialect cannot spell.
        """
        if tensor.is_meta and not tensor.numel():
            tensor = torch.empty(tensor.shape, dtype=tensor.dtype)  # all elements are present
        check_importable(tensor)
        key = storage_view_key(tensor)
        if (known := self._known.get(key)) is not None:
            return known[1]
        if self.elided and (number := self.elided.get((key, name), self.elided.get(key))) is not None:
            made = WeightHandle(HandleScope.CACHE, number).attribute(self._types.literal(tensor.dtype, tensor.shape))
        else:
            made = self._of_name(tensor, name) or self._make(tensor.detach(), name)
        if tensor.numel():
            self._known[key] = (tensor, made)
        if name is not None:
            self._named.setdefault(name, (tensor, made))
        return made

    def external(self, tensor: torch.Tensor, name: str) -> ir.Attribute:
        """Return a resource called ``name`` that represents ``tensor`` without its values.

        Raises:
            UnimportableTensor: if a program imported before has another tensor of that name.
            UnknownDtype: for a dtype that the torch dialect cannot spell.
        """
        key = ("external", *storage_view_key(tensor))
        if (known := self._known.get(key)) is not None:
            return known[1]
        other, made = self._external.get(name, (None, None))
        if other is None or made is None:
            made = elided_resource(name, self._types.literal(tensor.dtype, tensor.shape))
            self._external[name] = tensor, made
        elif not _may_be_one(tensor, other):
            raise UnimportableTensor("another program of this module has another tensor of that name")
        self._known[key] = (tensor, made)
        return made

    def _of_name(self, tensor: torch.Tensor, name: str | None) -> ir.Attribute | None:
        """Return the attribute of an equal tensor called ``name``, from another saved program of the same model."""
        tensor_of_name, attribute = self._named.get(name or "", (None, None))
        if tensor_of_name is None or (tensor_of_name.shape, tensor_of_name.dtype) != (tensor.shape, tensor.dtype):
            return None
        return attribute if np.array_equal(as_array(tensor_of_name), as_array(tensor)) else None

    def _make(self, tensor: torch.Tensor, name: str | None) -> ir.Attribute:
        type_ = self._types.literal(tensor.dtype, tensor.shape)
        if tensor.numel() and not any(tensor.stride()):
            tensor = tensor.as_strided((1,), (1,))  # expanded from one element
        data = as_array(tensor)
        if data.size and is_splat(data):
            return ir.DenseElementsAttr.get(data[:1], type=type_, context=self._context)
        # An i1 attribute has one byte per element, but readers of resources disagree on its layout.
        if tensor.dtype == torch.bool or data.size == 0 or (name is None and data.size <= INLINE_ELEMENTS):
            return ir.DenseElementsAttr.get(data, type=type_, context=self._context)
        return resource(data, name or "constant", type_)


def _may_be_one(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one name, such as from programs read from files, are equal if comparable."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return one.is_meta or other.is_meta or np.array_equal(as_array(one), as_array(other))


def check_importable(tensor: torch.Tensor) -> None:
    """Raise `UnimportableTensor` unless ``tensor`` is a plain strided tensor with memory."""
    if isinstance(tensor, torch._subclasses.FakeTensor) or tensor.is_meta:
        raise UnimportableTensor(
            "a fake or meta tensor has no values to put into the module: materialize it first "
            "(`module.to_empty(device='cpu')` and `load_state_dict`), or pass weights='external' or weights='args', "
            "which need none"
        )
    if problem := missing_values(tensor):
        raise UnimportableTensor(f"it {problem}: restore it before it is lowered")
    if tensor.is_quantized:
        raise UnimportableTensor(
            f"a quantized tensor ({tensor.dtype}) cannot be a literal: hold its integers, `int_repr()`, with scale and "
            "zero point, and dequantize in the model"
        )
    if tensor.layout != torch.strided:
        raise UnimportableTensor(
            f"a {tensor.layout} tensor of {tensor.dtype} cannot be a literal: densify it first (`to_dense()`), or "
            "take it as an input, whose type says how it is stored"
        )


def is_splat(data: np.ndarray) -> bool:
    """Return whether all elements are bitwise equal. Compares three of them before reading all."""
    first = data[0]
    return bool(data[-1] == first and data[data.size // 2] == first and (data == first).all())
