"""Which of a program's weights are withheld from what lowers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor
from torch.export.graph_signature import InputKind, InputSpec

from fx_importer.fx_graph.programs import LIFTED, place_of
from fx_importer.importing.weight_attributes import is_splat
from fx_importer.mlir.elided_weights import Lent
from fx_importer.mlir.tensor_elements import as_array


@dataclass
class Withheld:
    """Floating-point weights by number.

    Those that are one value throughout are not among them, since they are written as that, nor are integers, between
    which bounds are found.
    """

    lent: list[Lent] = field(default_factory=list[Lent])
    numbers: dict[object, int] = field(default_factory=dict[object, int])
    """By the place of a tensor in memory and its name, and by its place: tied weights are called by the first that is
    imported."""

    def takes(self, tensor: Tensor, spec: InputSpec) -> bool:
        """Whether ``tensor`` is withheld, for which it gets a number."""
        name, place = spec.target or "", place_of(tensor)
        if not tensor.is_floating_point() or not tensor.numel() or not any(tensor.stride()):
            return False
        if name.startswith(LIFTED):  # it is written out if it is short
            return False
        if place not in self.numbers and is_splat(as_array(tensor.detach())):
            return False
        self.numbers[place, name] = number = len(self.lent)
        self.numbers.setdefault(place, number)
        self.lent.append(Lent(name, partial(as_array, tensor.detach())))
        return True

    @staticmethod
    def is_unread(spec: InputSpec) -> bool:
        """Whether no stage before the import looks at the elements either; buffers and constants are folded there."""
        return spec.kind is InputKind.PARAMETER
