"""The operations that users' lowerings emit, the same for every target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from fx_importer.lowerings.constants import CannotEmit, product
from fx_importer.lowerings.elementwise_emitter import ElementwiseEmitter
from fx_importer.mlir.bindings import ir


class TargetEmitter(ElementwiseEmitter):
    """Emits operations of a target. Tensors are builtin tensors; operands may also be Python numbers.

    Shapes broadcast as in torch; a dynamic size is assumed not to be 1. Other operations are emitted by `op`, which
    takes the name of any operation, and `inline`, which takes MLIR text.
    """

    # --- shapes -----------------------------------------------------------------------------------------------------

    def reshape(self, x: ir.Value, sizes: Sequence[int]) -> ir.Value:
        """``x`` reshaped to ``sizes``; one size may be -1.

        Raises:
            CannotEmit: if the number of elements differs, or two sizes are dynamic.
        """
        old = self.shape(x)
        new: list[int | None] = list(sizes)
        known = [size for size in new if size != -1]
        if None in old:
            if new.count(-1) != 1 or old.count(None) > 1:
                raise CannotEmit(f"a tensor of sizes {list(old)} cannot be reshaped to {list(sizes)}: use inline")
            new[new.index(-1)] = None
        elif -1 in new:
            rest = product(known)
            new[new.index(-1)] = product(old) // rest if rest else 0
        if None not in old and product(old) != product(new):
            raise CannotEmit(f"a tensor of sizes {list(old)} cannot be reshaped to {list(sizes)}")
        return x if tuple(new) == old and None not in old else self._reshape(x, self.tensor(new, self.element(x)))

    def transpose(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """``x`` with its axes permuted: result axis ``i`` is axis ``axes[i]`` of ``x``."""
        shape = self.shape(x)
        axes = [axis % len(shape) for axis in axes]
        if sorted(axes) != list(range(len(shape))):
            raise CannotEmit(f"{list(axes)} is not a permutation of {len(shape)} axes")
        return self._transpose(x, axes, self.tensor([shape[axis] for axis in axes], self.element(x)))

    def broadcast(self, x: ir.Value, like: ir.Value) -> ir.Value:
        """``x`` broadcast to the shape of ``like``."""
        shape = self._broadcast_shape((x, like))
        if len(shape) != len(self.shape(like)):
            raise CannotEmit(f"a tensor of sizes {list(self.shape(x))} does not broadcast to {list(self.shape(like))}")
        return self._broadcast(x, like, self.tensor(shape, self.element(x)))

    def concat(self, tensors: Sequence[ir.Value], axis: int) -> ir.Value:
        """The tensors concatenated along ``axis``."""
        tensors = self._operands(tensors)
        shape = list(self.shape(tensors[0]))
        axis %= len(shape)
        along = [self.shape(tensor)[axis] for tensor in tensors]
        shape[axis] = None if None in along else sum(size or 0 for size in along)
        return self._concat(tensors, axis, self.tensor(shape, self.element(tensors[0])))

    def slice(self, x: ir.Value, starts: Sequence[int], sizes: Sequence[int | None]) -> ir.Value:
        """The slice of ``x`` from ``starts``, with ``sizes``; None takes a dynamic axis whole.

        Raises:
            CannotEmit: for other numbers of starts or sizes than axes, None with a start other than zero or for a
                static axis, and None in StableHLO.
        """
        wrong = [
            axis
            for axis, (old, start, size) in enumerate(zip(self.shape(x), starts, sizes, strict=False))
            if size is None and (start or old is not None)
        ]
        if wrong:
            raise CannotEmit(f"a slice takes no axis but a dynamic one whole, and not axis {wrong[0]} of {x.type}")
        if not len(starts) == len(sizes) == len(self.shape(x)):
            raise CannotEmit(f"a slice of a tensor of rank {len(self.shape(x))} takes as many starts and sizes")
        return self._slice(x, starts, self.tensor(sizes, self.element(x)))

    # --- reductions and products ------------------------------------------------------------------------------------

    def sum(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The sum over ``axes``."""
        return self._reduced("sum", x, axes, keepdim)

    def amax(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The largest element over ``axes``."""
        return self._reduced("amax", x, axes, keepdim)

    def amin(self, x: ir.Value, axes: Sequence[int], keepdim: bool = False) -> ir.Value:
        """The smallest element over ``axes``."""
        return self._reduced("amin", x, axes, keepdim)

    def _reduced(self, name: str, x: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
        shape = self.shape(x)
        axes = sorted({axis % len(shape) for axis in axes})
        kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
        left = [size for axis, size in enumerate(shape) if axis not in axes]
        return self._reduce(name, x, axes, self.tensor(kept if keepdim else left, self.element(x)))

    def matmul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The matrix product of two matrices, or of two batches of matrices of equal size."""
        a, b = self.shape(x), self.shape(y)
        x, y = self._operands((x, y))
        if not len(a) == len(b) in (2, 3) or a[:-2] != b[:-2] or a[-1] != b[-2]:
            raise CannotEmit(f"matrices of sizes {list(a)} and {list(b)} have no product")
        return self._matmul(x, y, self.tensor((*a[:-1], b[-1]), self.element(x)))

    # --- the target -------------------------------------------------------------------------------------------------

    @abstractmethod
    def _reshape(self, x: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _transpose(self, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _broadcast(self, x: ir.Value, like: ir.Value, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _concat(self, tensors: Sequence[ir.Value], axis: int, kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _slice(self, x: ir.Value, starts: Sequence[int], kind: ir.Type) -> ir.Value: ...

    @abstractmethod
    def _reduce(self, name: str, x: ir.Value, axes: Sequence[int], kind: ir.Type) -> ir.Value:
        """Emit a reduction; ``kind`` has the reduced axes with size 1, or lacks them."""

    @abstractmethod
    def _matmul(self, x: ir.Value, y: ir.Value, kind: ir.Type) -> ir.Value: ...
