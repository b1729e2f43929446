"""Selection of the weights that a cached lowering elides; `fx_importer.mlir.elided_weights` has their handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor
from torch.export.graph_signature import InputKind, InputSpec

from fx_importer.fx_graph.programs import LIFTED_TENSOR_PREFIX, storage_view_key
from fx_importer.importing.weight_attributes import is_splat
from fx_importer.mlir.elided_weights import ElidedWeight
from fx_importer.mlir.tensor_elements import as_array


@dataclass
class ElidedWeights:
    """The elided weights of a lowering, by number: floating-point tensors.

    Splats are not elided, since they are imported as splats, and neither are integers, whose ranges are computed.
    """

    weights: list[ElidedWeight] = field(default_factory=list[ElidedWeight])
    numbers: dict[object, int] = field(default_factory=dict[object, int])
    """Numbers by memory location and name, and by memory location alone: tied weights have the name of the first one
    imported."""

    def elide(self, tensor: Tensor, spec: InputSpec) -> bool:
        """Assign ``tensor`` a number if it can be elided, and return whether it can."""
        name, place = spec.target or "", storage_view_key(tensor)
        if not tensor.is_floating_point() or not tensor.numel() or not any(tensor.stride()):
            return False
        if name.startswith(LIFTED_TENSOR_PREFIX):  # a short one is imported as a literal
            return False
        if place not in self.numbers and is_splat(as_array(tensor.detach())):
            return False
        self.numbers[place, name] = number = len(self.weights)
        self.numbers.setdefault(place, number)
        self.weights.append(ElidedWeight(name, partial(as_array, tensor.detach())))
        return True

    @staticmethod
    def is_unread(spec: InputSpec) -> bool:
        """Return whether no stage before the import reads the elements. Buffers and constants are folded there."""
        return spec.kind is InputKind.PARAMETER
