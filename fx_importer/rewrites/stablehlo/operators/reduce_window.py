"""Pools, of one to three axes, as ``stablehlo.reduce_window``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit import constant_of, is_used, producer
from fx_importer.rewrites.stablehlo.tensor_emitter import Size, TensorEmitter

Rule = Callable[[ir.Operation, TensorEmitter], "Sequence[ir.Value] | None"]
Body = Callable[..., Sequence[ir.Value]]


@dataclass(frozen=True)
class _Windows:
    """The windows along an axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil: bool
    """Whether the last may reach beyond the padding. None begins behind the axis."""

    @property
    def reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    def behind(self, size: Size) -> int:
        """Return how far windows may reach behind an axis of ``size``."""
        if not self.ceil:
            return self.padding
        if not isinstance(size, int):
            return self.padding + self.stride - 1
        more = -(size + 2 * self.padding - self.reach) % self.stride
        return self.padding + (more if self.padding + more < self.reach else 0)

    def count(self, size: Size, behind: int, before: int) -> int | None:
        """Return how many there are, if that is known."""
        return (size + before + behind - self.reach) // self.stride + 1 if isinstance(size, int) else None

    def is_cut(self, size: Size) -> bool:
        """Whether `behind` may make room for one too many."""
        return self.ceil and not isinstance(size, int) and self.padding + self.stride > self.reach


def _windows_of(op: ir.Operation, emit: TensorEmitter, axes: int) -> list[_Windows] | None:
    """Return the windows along each of the last axes; None, if some number is known at run time only."""
    dilation, ceil = list(op.operands)[4:6] if "max" in op.name else (None, op.operands[4])
    lists = [emit.integers(each) for each in list(op.operands)[1:4]]
    lists.append([1] if dilation is None else emit.integers(dilation))
    known, beyond = [each for each in lists if each is not None], constant_of(ceil)
    if len(known) < len(lists) or beyond is None:
        return None
    kernel, stride, padding, spread = known
    settings = (kernel, stride or kernel, padding, spread)
    each = [list(numbers) * axes if len(numbers) == 1 else numbers for numbers in settings]
    return [_Windows(*numbers, ceil=bool(beyond)) for numbers in zip(*each, strict=True)]


def _reduce(
    emit: TensorEmitter,
    tensors: Sequence[ir.Value],
    initial: Sequence[ir.Value],
    windows: Sequence[_Windows],
    body: Body,
) -> list[ir.Value]:
    """Emit the reduction of each window along the last axes."""
    sizes = emit.sizes(tensors[0])
    rest = len(sizes) - len(windows)
    along = list(zip(windows, sizes[rest:], strict=True))
    padding = [(0, 0)] * rest + [(each.padding, each.behind(size)) for each, size in along]
    counts = [
        each.count(size, behind, before) for (each, size), (before, behind) in zip(along, padding[rest:], strict=True)
    ]
    widths = ", ".join(f"[{before}, {behind}]" for before, behind in padding)
    attributes = {
        "window_dimensions": emit.array([1] * rest + [each.kernel for each in windows]),
        "window_strides": emit.array([1] * rest + [each.stride for each in windows]),
        "window_dilations": emit.array([1] * rest + [each.dilation for each in windows]),
        "padding": ir.Attribute.parse(f"dense<[{widths}]> : tensor<{len(sizes)}x2xi64>", emit.context),
    }
    kinds = [emit.tensor([*sizes[:rest], *counts], emit.element(each)) for each in tensors]
    made = emit.op("stablehlo.reduce_window", kinds, [*tensors, *initial], attributes, regions=1)
    emit.block(made.regions[0], [each.type for each in initial] * 2, body)
    if not any(each.is_cut(size) for each, size in along):
        return list(made.results)
    kept = emit.sizes(made.results[0])
    for axis, (each, size) in enumerate(along, rest):
        if each.is_cut(size):  # those that begin within
            within = emit.calculated("divui", emit.plus(size, each.padding + each.stride - 1), each.stride)
            kept[axis] = emit.calculated("minsi", kept[axis], within)
    return [emit.first(each, kept) for each in made.results]


# --- the largest ----------------------------------------------------------------------------------------------------


def _max_pool(axes: int) -> Rule:
    def rule(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
        windows = _windows_of(op, emit, axes)
        if windows is None:
            return None
        x = emit.send(op.operands[0])
        least = emit.constant(_least(emit.element(x)), emit.tensor((), emit.element(x)))
        if len(op.results) == 1:
            return _reduce(emit, [x], [least], windows, _larger)
        if not is_used(op.results[1]):
            found = _reduce(emit, [x], [least], windows, _larger)
            return [*found, emit.converted(found[0], "i64")]  # which nothing reads
        last = emit.constant(str(2**63 - 1), "tensor<i64>")
        return _reduce(emit, [x, _places(emit, emit.sizes(x), axes)], [least, last], windows, _larger_and_where)

    return rule


def _least(element: str) -> str:
    if element.startswith("ui"):
        return "0"
    if element.startswith("i"):
        return str(-(2 ** (int(element[1:]) - 1)))
    return {"f64": "0xFFF0000000000000", "f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}[element]


def _larger(emit: TensorEmitter, a: ir.Value, b: ir.Value) -> list[ir.Value]:
    return [emit.value("stablehlo.maximum", a.type, a, b)]


def _larger_and_where(
    emit: TensorEmitter, a: ir.Value, place_a: ir.Value, b: ir.Value, place_b: ir.Value
) -> list[ir.Value]:
    """The first of equals; and the last of what is not a number, as in eager."""

    def either(*truths: ir.Value) -> ir.Value:
        return emit.value("stablehlo.or", truths[0].type, *truths)

    def both(*truths: ir.Value) -> ir.Value:
        return emit.value("stablehlo.and", truths[0].type, *truths)

    first = both(emit.compare("EQ", a, b), emit.compare("LT", place_a, place_b))
    wins = either(emit.compare("GT", a, b), first)
    if "f" in emit.element(a):
        number, last = emit.compare("EQ", b, b), emit.compare("GT", place_a, place_b)
        wins = either(wins, both(emit.compare("NE", a, a), either(number, last)))
    chosen = ((a, b), (place_a, place_b))
    return [emit.value("stablehlo.select", each.type, wins, each, other) for each, other in chosen]


def _places(emit: TensorEmitter, sizes: Sequence[Size], axes: int) -> ir.Value:
    """Emit where each element is in the flat order of the last axes."""
    place: ir.Value | None = None
    for axis in range(len(sizes) - axes, len(sizes)):
        here = emit.iota(axis, sizes)
        if place is not None:
            scale = emit.filled(emit.scalar(sizes[axis]), sizes)
            before = emit.value("stablehlo.multiply", here.type, place, scale)
            here = emit.value("stablehlo.add", here.type, before, here)
        place = here
    assert place is not None
    return place


# --- averages -------------------------------------------------------------------------------------------------------


def _avg_pool(axes: int) -> Rule:
    """Sums, divided by the number of their terms: half precision in float32."""

    def rule(op: ir.Operation, emit: TensorEmitter) -> Sequence[ir.Value] | None:
        windows, count_padding = _windows_of(op, emit, axes), constant_of(op.operands[5])
        divisor = op.operands[6] if len(op.operands) > 6 else None  # which one axis lacks
        fixed = None if divisor is None else constant_of(divisor)
        given = divisor is not None and producer(divisor) != "torch.constant.none"
        if windows is None or count_padding is None or (given and fixed is None):
            return None
        x = emit.send(op.operands[0])
        element = emit.element(x)
        x = emit.converted(x, "f32") if element in ("f16", "bf16") else x
        total = _sums(emit, x, windows)
        sizes = emit.sizes(total)
        if given or (not windows[0].ceil and (count_padding or not any(each.padding for each in windows))):
            number = fixed if fixed is not None else prod(each.kernel for each in windows)
            by = emit.filled(_number(emit, number, x), sizes)
        else:
            terms = _terms(emit, emit.sizes(x)[-axes:], sizes[-axes:], windows, bool(count_padding))
            by = emit.spread(emit.converted(terms, emit.element(x)), range(len(sizes) - axes, len(sizes)), sizes)
        return [emit.converted(emit.value("stablehlo.divide", total.type, total, by), element)]

    return rule


def _terms(
    emit: TensorEmitter, taken: Sequence[Size], sizes: Sequence[Size], windows: Sequence[_Windows], count_padding: bool
) -> ir.Value:
    """Emit how many elements, of ``taken`` along each axis, each of the windows has."""
    found: ir.Value | None = None
    for axis, (each, size) in enumerate(zip(windows, taken, strict=True)):
        places = emit.iota(0, sizes[axis : axis + 1])

        def number(value: Size, places: ir.Value = places) -> ir.Value:
            return emit.filled(emit.scalar(value), emit.sizes(places))

        def op(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
            return emit.value(f"stablehlo.{name}", a.type, a, b)

        start = op("add", op("multiply", places, number(each.stride)), number(-each.padding))
        end = op("add", start, number(each.kernel))
        end = op("minimum", end, number(emit.plus(size, each.padding if count_padding else 0)))
        length = op("subtract", end, start if count_padding else op("maximum", start, number(0)))
        length = emit.spread(length, [axis], sizes)
        found = length if found is None else op("multiply", found, length)
    assert found is not None
    return found


def _sums(emit: TensorEmitter, x: ir.Value, windows: Sequence[_Windows]) -> ir.Value:
    def add(inside: TensorEmitter, a: ir.Value, b: ir.Value) -> list[ir.Value]:
        return [inside.value("stablehlo.add", a.type, a, b)]

    return _reduce(emit, [x], [_number(emit, 0, x)], windows, add)[0]


def _number(emit: TensorEmitter, number: int, like: ir.Value) -> ir.Value:
    element = emit.element(like)
    return emit.constant(f"{number}.0" if "f" in element else str(number), emit.tensor((), element))


RULES: dict[str, Rule] = {
    **{f"torch.aten.max_pool{axes}d": _max_pool(axes) for axes in (1, 2, 3)},
    **{f"torch.aten.max_pool{axes}d_with_indices": _max_pool(axes) for axes in (2, 3)},
    **{f"torch.aten.avg_pool{axes}d": _avg_pool(axes) for axes in (1, 2, 3)},
}
