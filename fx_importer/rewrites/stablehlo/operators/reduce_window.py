"""Lower max and average pooling over one to three axes to ``stablehlo.reduce_window``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import Size, is_used, producer
from fx_importer.mlir.emit.torch import constant_of
from fx_importer.rewrites.stablehlo.tensor_emitter import OperatorLowering, TensorEmitter

Body = Callable[..., Sequence[ir.Value]]


@dataclass(frozen=True)
class _Windows:
    """The windows along an axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil: bool
    """Whether the last window may reach beyond the padding. No window starts beyond the axis."""

    @property
    def extent(self) -> int:
        """The size of a window, including dilation."""
        return self.dilation * (self.kernel - 1) + 1

    def padding_after(self, size: Size) -> int:
        """Return the padding after an axis of ``size``; if the size is dynamic, at least enough for the last window."""
        if not self.ceil:
            return self.padding
        if not isinstance(size, int):
            return self.padding + self.stride - 1
        more = -(size + 2 * self.padding - self.extent) % self.stride
        return self.padding + (more if self.padding + more < self.extent else 0)

    def count(self, size: Size, before: int, after: int) -> int | None:
        """Return the number of windows; None if the size is dynamic."""
        return (size + before + after - self.extent) // self.stride + 1 if isinstance(size, int) else None

    def is_cut(self, size: Size) -> bool:
        """Whether `padding_after` may make room for one window too many."""
        return self.ceil and not isinstance(size, int) and self.padding + self.stride > self.extent


def _windows_of(op: ir.Operation, emit: TensorEmitter, axes: int) -> list[_Windows] | None:
    """Return the windows along each of the last axes; None if a parameter is not constant."""
    dilation, ceil = list(op.operands)[4:6] if "max" in op.name else (None, op.operands[4])
    lists = [emit.integers(operand) for operand in list(op.operands)[1:4]]
    lists.append([1] if dilation is None else emit.integers(dilation))
    known, ceil_mode = [values for values in lists if values is not None], constant_of(ceil)
    if len(known) < len(lists) or ceil_mode is None:
        return None
    kernel, stride, padding, dilations = known
    settings = (kernel, stride or kernel, padding, dilations)
    of_axes = [list(numbers) * axes if len(numbers) == 1 else numbers for numbers in settings]
    return [_Windows(*numbers, ceil=bool(ceil_mode)) for numbers in zip(*of_axes, strict=True)]


def _reduce(
    emit: TensorEmitter,
    tensors: Sequence[ir.Value],
    initial: Sequence[ir.Value],
    windows: Sequence[_Windows],
    body: Body,
) -> list[ir.Value]:
    """Emit the reduction of each window along the last axes."""
    sizes = emit.arith.sizes(tensors[0])
    rest = len(sizes) - len(windows)
    along = list(zip(windows, sizes[rest:], strict=True))
    padding = [(0, 0)] * rest + [(window.padding, window.padding_after(size)) for window, size in along]
    counts = [window.count(size, *widths) for (window, size), widths in zip(along, padding[rest:], strict=True)]
    widths = ", ".join(f"[{before}, {after}]" for before, after in padding)
    attributes = {
        "window_dimensions": emit.array([1] * rest + [window.kernel for window in windows]),
        "window_strides": emit.array([1] * rest + [window.stride for window in windows]),
        "window_dilations": emit.array([1] * rest + [window.dilation for window in windows]),
        "padding": ir.Attribute.parse(f"dense<[{widths}]> : tensor<{len(sizes)}x2xi64>", emit.context),
    }
    kinds = [emit.tensor([*sizes[:rest], *counts], emit.element(tensor)) for tensor in tensors]
    made = emit.op("stablehlo.reduce_window", kinds, [*tensors, *initial], attributes, regions=1)
    emit.fill_region(made.regions[0], [value.type for value in initial] * 2, body)
    if not any(window.is_cut(size) for window, size in along):
        return list(made.results)
    kept = emit.arith.sizes(made.results[0])
    for axis, (window, size) in enumerate(along, rest):
        if window.is_cut(size):  # windows that start within the axis
            started = emit.arith.index_op("divui", emit.plus(size, window.padding + window.stride - 1), window.stride)
            kept[axis] = emit.arith.index_op("minsi", kept[axis], started)
    return [emit.first(result, kept) for result in made.results]


# --- maximum --------------------------------------------------------------------------------------------------------


def _max_pool(axes: int) -> OperatorLowering:
    def lower(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
        windows = _windows_of(op, emit, axes)
        if windows is None:
            return None
        x = emit.torch.to_builtin(op.operands[0])
        least = emit.dense_constant(_least(emit.element(x)), emit.tensor((), emit.element(x)))
        if len(op.results) == 1:
            return _reduce(emit, [x], [least], windows, _larger)
        if not is_used(op.results[1]):
            reduced = _reduce(emit, [x], [least], windows, _larger)
            return [*reduced, emit.converted(reduced[0], "i64")]  # unused
        last = emit.dense_constant(str(2**63 - 1), "tensor<i64>")
        return _reduce(
            emit, [x, _flat_indices(emit, emit.arith.sizes(x), axes)], [least, last], windows, _larger_with_index
        )

    return lower


def _least(element: str) -> str:
    if element.startswith("ui"):
        return "0"
    if element.startswith("i"):
        return str(-(2 ** (int(element[1:]) - 1)))
    return {"f64": "0xFFF0000000000000", "f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}[element]


def _larger(emit: TensorEmitter, a: ir.Value, b: ir.Value) -> list[ir.Value]:
    return [emit.value("stablehlo.maximum", a.type, a, b)]


def _larger_with_index(
    emit: TensorEmitter, a: ir.Value, index_a: ir.Value, b: ir.Value, index_b: ir.Value
) -> list[ir.Value]:
    """Emit the larger element and its index. Ties keep the first index; of several NaNs the last wins, as in eager."""

    def either(one: ir.Value, other: ir.Value) -> ir.Value:
        return emit.stablehlo("or", one.type, one, other)

    def both(one: ir.Value, other: ir.Value) -> ir.Value:
        return emit.stablehlo("and", one.type, one, other)

    first = both(emit.compare_elements("EQ", a, b), emit.compare_elements("LT", index_a, index_b))
    wins = either(emit.compare_elements("GT", a, b), first)
    if "f" in emit.element(a):
        number, last = emit.compare_elements("EQ", b, b), emit.compare_elements("GT", index_a, index_b)
        wins = either(wins, both(emit.compare_elements("NE", a, a), either(number, last)))
    chosen = ((a, b), (index_a, index_b))
    return [emit.value("stablehlo.select", value.type, wins, value, other) for value, other in chosen]


def _flat_indices(emit: TensorEmitter, sizes: Sequence[Size], axes: int) -> ir.Value:
    """Emit the index of each element in the flattened last axes."""
    flat: ir.Value | None = None
    for axis in range(len(sizes) - axes, len(sizes)):
        here = emit.iota(axis, sizes)
        if flat is not None:
            scale = emit.filled(emit.scalar(sizes[axis]), sizes)
            before = emit.value("stablehlo.multiply", here.type, flat, scale)
            here = emit.value("stablehlo.add", here.type, before, here)
        flat = here
    assert flat is not None
    return flat


# --- averages -------------------------------------------------------------------------------------------------------


def _avg_pool(axes: int) -> OperatorLowering:
    """Lower to window sums divided by their numbers of terms; float16 and bfloat16 accumulate in float32."""

    def lower(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
        windows, count_padding = _windows_of(op, emit, axes), constant_of(op.operands[5])
        divisor = op.operands[6] if len(op.operands) > 6 else None  # absent with one axis
        fixed = None if divisor is None else constant_of(divisor)
        has_divisor = divisor is not None and producer(divisor) != "torch.constant.none"
        if windows is None or count_padding is None or (has_divisor and fixed is None):
            return None
        x = emit.torch.to_builtin(op.operands[0])
        element = emit.element(x)
        x = emit.converted(x, "f32") if element in ("f16", "bf16") else x
        total = _sums(emit, x, windows)
        sizes = emit.arith.sizes(total)
        if has_divisor or (not windows[0].ceil and (count_padding or not any(window.padding for window in windows))):
            number = fixed if fixed is not None else prod(window.kernel for window in windows)
            by = emit.filled(_number(emit, number, x), sizes)
        else:
            terms = _terms(emit, emit.arith.sizes(x)[-axes:], sizes[-axes:], windows, bool(count_padding))
            by = emit.broadcast(emit.converted(terms, emit.element(x)), range(len(sizes) - axes, len(sizes)), sizes)
        return [emit.converted(emit.value("stablehlo.divide", total.type, total, by), element)]

    return lower


def _terms(
    emit: TensorEmitter, counts: Sequence[Size], sizes: Sequence[Size], windows: Sequence[_Windows], count_padding: bool
) -> ir.Value:
    """Emit the number of elements per window, given the input sizes ``counts`` and the result sizes ``sizes``."""
    terms: ir.Value | None = None
    for axis, (window, size) in enumerate(zip(windows, counts, strict=True)):
        indices = emit.iota(0, sizes[axis : axis + 1])

        def number(value: Size, indices: ir.Value = indices) -> ir.Value:
            return emit.filled(emit.scalar(value), emit.arith.sizes(indices))

        def op(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
            return emit.value(f"stablehlo.{name}", a.type, a, b)

        start = op("add", op("multiply", indices, number(window.stride)), number(-window.padding))
        end = op("add", start, number(window.kernel))
        end = op("minimum", end, number(emit.plus(size, window.padding if count_padding else 0)))
        length = op("subtract", end, start if count_padding else op("maximum", start, number(0)))
        length = emit.broadcast(length, [axis], sizes)
        terms = length if terms is None else op("multiply", terms, length)
    assert terms is not None
    return terms


def _sums(emit: TensorEmitter, x: ir.Value, windows: Sequence[_Windows]) -> ir.Value:
    def add(inside: TensorEmitter, a: ir.Value, b: ir.Value) -> list[ir.Value]:
        return [inside.value("stablehlo.add", a.type, a, b)]

    return _reduce(emit, [x], [_number(emit, 0, x)], windows, add)[0]


def _number(emit: TensorEmitter, number: int, like: ir.Value) -> ir.Value:
    element = emit.element(like)
    return emit.dense_constant(f"{number}.0" if "f" in element else str(number), emit.tensor((), element))


LOWERINGS: dict[str, OperatorLowering] = {
    **{f"torch.aten.max_pool{axes}d": _max_pool(axes) for axes in (1, 2, 3)},
    **{f"torch.aten.max_pool{axes}d_with_indices": _max_pool(axes) for axes in (2, 3)},
    **{f"torch.aten.avg_pool{axes}d": _avg_pool(axes) for axes in (1, 2, 3)},
}
