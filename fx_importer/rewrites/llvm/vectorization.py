"""Vectorization of float32 reductions over loop nests, such as matmuls with fused dequantization.

LLVM makes vectors of such a loop too, but reads one row of a weight at a time: a processor waits for memory. Here a
loop computes several rows at once, and asks for those that follow. The order of each sum depends on the sizes only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.emitter import attributes_of, producer
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.arena import memory_of
from fx_importer.rewrites.llvm.kernel_outlining import SMALL_TRIP_COUNT, Slice, contract, load_of_sum
from fx_importer.rewrites.llvm.nibble_tables import nibble_tables
from fx_importer.rewrites.llvm.parallel_loops import TILES, constant_bound
from fx_importer.rewrites.llvm.row_products import SHARED_WORK, prefetch, registers

_MOST_ROWS = 8
"""Rows that are read at the same time."""
_FEWEST_SUMS = 4
"""Vectors of sums below which an addition waits for the one before."""
_ELEMENTS = {"i8", "i16", "i32", "f16", "bf16", "f32"}
"""What vectors are loaded of; those of i1 would be of bits in memory."""


@rewrite("fx-importer-vectorize-sums")
def vectorize_sums(module: ir.Operation) -> None:
    """Compute the sums of float32 of large loops in vectors, several rows at once."""
    if not registers(module)[0]:
        return
    for op in operations(module.operation, ("scf.parallel",)):
        if (nest := _Nest.of(op)) is not None:
            with module.context, op.location:
                nest.emit(LoopEmitter.before(op))
            op.erase()


@dataclass(frozen=True)
class _Nest:
    """Loops over rows, in them over what is summed; the last one is over lanes, or over what is summed too."""

    sizes: list[int]
    """Of all loops, in the order of ``counters``; the last one of ``rows`` is computed several at once."""
    counters: list[ir.Value]
    rows: int
    """The number of loops over rows."""
    body: list[ir.Operation]
    load: ir.Operation
    """The load of the sum so far."""
    store: ir.Operation
    vectors: int
    """The number of vectors of a row that are computed at once."""
    jammed: int
    """The number of rows that are computed at once."""
    is_lanes: bool
    """Whether the last loop is over lanes, and not summed."""

    @classmethod
    def of(cls, outer: ir.Operation) -> _Nest | None:
        """Return the loops in ``outer``; None if they are others, or small."""
        sizes: list[int] = []
        counters: list[ir.Value] = []
        body: list[ir.Operation] = []
        loop, depth, rows = outer, 0, 0
        while True:
            loop_sizes = _sizes(loop)
            if loop_sizes is None:
                return None
            sizes += loop_sizes
            block = loop.regions[0].blocks[0]
            counters += block.arguments
            rows = rows or len(sizes)
            inside = [op.operation for op in block][:-1]
            deeper = [op for op in inside if op.name in ("scf.for", "scf.parallel")]
            body += [op for op in inside if op not in deeper]
            depth += 1
            if not deeper:
                break
            if len(deeper) > 1 or (loop.name == "scf.parallel" and depth > 1):
                return None
            loop = deeper[0]
        is_lanes = loop.name == "scf.parallel"
        if depth < 2 + is_lanes or len(counters) != rows + depth - 1 or math.prod(sizes) <= SMALL_TRIP_COUNT:
            return None
        stores = [op for op in body if op.name == "memref.store"]
        if len(stores) != 1 or not all(_is_elementwise(op) for op in body):
            return None
        (store,) = stores
        load = load_of_sum(store)
        if load is None or str(load.results[0].type) != "f32" or len(list(load.results[0].uses)) > 1:
            return None
        if not cls._is_distinct(body, load, store):
            return None
        width, count = registers(outer)
        most = count // 2
        units, rest = divmod(sizes[-1], width)
        jammed = math.gcd(sizes[rows - 1], _MOST_ROWS)
        if is_lanes:
            vectors = units
            while jammed > 1 and jammed * vectors > most:
                jammed //= 2
        else:
            vectors = math.gcd(units, max(_MOST_ROWS // jammed, 1))
        if rest or not _FEWEST_SUMS <= jammed * vectors <= most:
            return None
        nest = cls(sizes, counters, rows, body, load, store, vectors, jammed, is_lanes)
        return nest if nest._is_contiguous() else None

    @staticmethod
    def _is_distinct(body: Sequence[ir.Operation], load: ir.Operation, store: ir.Operation) -> bool:
        """Whether no other load reads memory that is written."""
        memory = memory_of(store.operands[1])
        if memory is None or isinstance(memory, str):
            return False
        read = [op.operands[0] for op in body if op.name == "memref.load" and op != load]
        others = [memory_of(value) for value in read if producer(value) != "memref.get_global"]
        return all(other is not None and other != memory for other in others)

    def _is_contiguous(self) -> bool:
        """Whether everything that depends on the last loop is a vector, and the sum on no other that is summed."""
        last, dependent = self.counters[-1], self._dependent(self.counters[-1])
        for op in self.body:
            if op.name == "memref.load" or op == self.store:
                buffer, *indices = list(op.operands)[op == self.store :]
                if any(index in dependent for index in indices[:-1]):
                    return False
                if not indices or indices[-1] not in dependent:
                    continue
                kind = ir.MemRefType(buffer.type)
                strides, _ = kind.get_strides_and_offset()
                if indices[-1] != last or strides[-1] != 1 or str(kind.element_type) not in _ELEMENTS:
                    return False
        total, _, *indices = self.store.operands
        summed = self.counters[self.rows : len(self.counters) - self.is_lanes]
        if total not in dependent or any(index in self._dependent(counter) for counter in summed for index in indices):
            return False
        return (indices[-1] == last) == self.is_lanes if indices else not self.is_lanes

    def _dependent(self, counter: ir.Value) -> set[ir.Value]:
        """Return ``counter`` and the values that depend on it."""
        dependent = {counter}
        for op in self.body:
            if any(operand in dependent for operand in op.operands):
                dependent.update(op.results)
        return dependent

    def emit(self, emit: LoopEmitter) -> None:
        """Emit the loops."""
        contract(self.store)
        shared = math.prod(self.sizes) >= SHARED_WORK
        outer = [*self.sizes[: self.rows - 1], self.sizes[self.rows - 1] // self.jammed]
        inside, counters = emit.parallel_loops(outer, {TILES: ir.UnitAttr.get()} if shared else {})
        first = inside.index_op("muli", counters[-1], self.jammed)
        numbers = [inside.index_op("addi", first, at) for at in range(self.jammed)]
        last = self.sizes[self.rows - 1] - 1
        following = [inside.index_op("minui", inside.index_op("addi", number, self.jammed), last) for number in numbers]
        rows = [dict(zip(self.counters, [*counters[:-1], number], strict=False)) for number in numbers]
        width, _ = registers(emit)
        vector = emit.type(f"vector<{width}xf32>")
        _, buffer, *indices = self.store.operands
        starts = [inside.index(at * width) for at in range(self.vectors)]
        zeros = inside.value("vector.broadcast", vector, inside.constant_scalar(0.0, emit.type("f32")))

        def place_of(row: dict[ir.Value, ir.Value], start: ir.Value) -> list[ir.Value]:
            return [row.get(index, start if index == self.counters[-1] else index) for index in indices]

        state = [
            inside.value("vector.load", vector, buffer, *place_of(row, start)) if self.is_lanes else zeros
            for row in rows
            for start in starts
        ]
        step = width * self.vectors
        summed = self.sizes[self.rows :]
        summed = summed[:-1] if self.is_lanes else [*summed[:-1], summed[-1] // step]

        def body(deep: LoopEmitter, at: Sequence[ir.Value], carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            places = starts
            if not self.is_lanes:
                begin = deep.index_op("muli", at[-1], step)
                places = [deep.index_op("addi", begin, offset) for offset in range(0, step, width)]
                at = at[:-1]
            steps = [row | dict(zip(self.counters[self.rows :], at, strict=False)) for row in rows]
            return self._emit_step(deep, steps, following, places, carried)

        sums = inside.nest(summed, state, body)
        for number, row in enumerate(rows):
            mine = sums[number * self.vectors : (number + 1) * self.vectors]
            if self.is_lanes:
                for start, row_sum in zip(starts, mine, strict=True):
                    inside.op("vector.store", [], [row_sum, buffer, *place_of(row, start)])
                continue
            total = mine[0]
            for row_sum in mine[1:]:
                total = inside.value("arith.addf", vector, total, row_sum)
            add = {
                "kind": emit.attribute("#vector.kind<add>"),
                "fastmath": emit.attribute("#arith.fastmath<reassoc>"),
            }
            element = inside.op("vector.reduction", ["f32"], [total], add).result
            where = place_of(row, starts[0])
            old = inside.value("memref.load", "f32", buffer, *where)
            inside.op("memref.store", [], [inside.value("arith.addf", "f32", old, element), buffer, *where])

    def _emit_step(
        self,
        emit: LoopEmitter,
        rows: Sequence[dict[ir.Value, ir.Value]],
        following: Sequence[ir.Value],
        places: Sequence[ir.Value],
        carried: Sequence[ir.Value],
    ) -> list[ir.Value]:
        """Emit the body for ``rows``, by the values of counters, and vectors at ``places``; return the new sums."""
        by_row, by_place = self._dependent(self.counters[self.rows - 1]), self._dependent(self.counters[-1])
        made: dict[tuple[ir.Value, int, int], ir.Value] = {}

        def key_of(value: ir.Value, row: int, at: int) -> tuple[ir.Value, int, int]:
            return value, row if value in by_row else 0, at if value in by_place else 0

        def value_of(value: ir.Value, row: int, at: int, *, as_vector: bool) -> ir.Value:
            if value == self.load.results[0]:
                return carried[row * len(places) + at]
            if value == self.counters[-1]:
                return _numbers_from(emit, places[at])
            known = made.get(key_of(value, row, at), rows[row].get(value, value))
            if as_vector and not isinstance(known.type, ir.VectorType):
                known = emit.value("vector.broadcast", _vector(emit, known.type), known)
            return known

        def emit_load(op: ir.Operation, row: int, at: int) -> ir.Value:
            buffer, *indices = op.operands
            if op.results[0] not in by_place:
                indices = [value_of(index, row, at, as_vector=False) for index in indices]
                return emit.value("memref.load", op.results[0].type, buffer, *indices)
            *indices, _ = indices
            if op.results[0] in by_row:
                counter = self.counters[self.rows - 1]
                ahead = [
                    following[row] if index == counter else value_of(index, row, at, as_vector=False)
                    for index in indices
                ]
                prefetch(emit, buffer, *ahead, places[at])
            indices = [value_of(index, row, at, as_vector=False) for index in indices]
            return emit.value("vector.load", _vector(emit, op.results[0].type), buffer, *indices, places[at])

        joined = _joined_bytes(self.body)
        tables = nibble_tables(self.body, registers(emit)[0])
        total, sums = self.store.operands[0], list[ir.Value]()
        for row, at in itertools.product(range(len(rows)), range(len(places))):
            for op in self.body:
                if op in (self.load, self.store) or key_of(op.results[0], row, at) in made:
                    continue
                result = op.results[0]
                if op.name == "memref.load":
                    made[key_of(result, row, at)] = emit_load(op, row, at)
                    continue
                if result in joined and result not in by_place:
                    buffer, *indices = joined[result].operands
                    indices = [value_of(index, row, at, as_vector=False) for index in indices]
                    made[key_of(result, row, at)] = _load_word(emit, result.type, buffer, *indices)
                    continue
                is_vector = result in by_place
                if is_vector and result in tables:
                    table = tables[result]
                    made[key_of(result, row, at)] = table.emit(emit, made[key_of(table.byte, row, at)])
                    continue
                operands = [value_of(operand, row, at, as_vector=is_vector) for operand in op.operands]
                kind = _vector(emit, result.type) if is_vector else result.type
                made[key_of(result, row, at)] = emit.op(op.name, [kind], operands, attributes_of(op)).result
            sums.append(made[key_of(total, row, at)])
        return sums


def _vector(emit: LoopEmitter, element: ir.Type) -> ir.Type:
    return ir.VectorType.get([registers(emit)[0]], element)


def _numbers_from(emit: LoopEmitter, first: ir.Value) -> ir.Value:
    """Emit the vector of the numbers from ``first`` on."""
    width, _ = registers(emit)
    kind = f"vector<{width}xindex>"
    numbers = emit.op("arith.constant", [kind], (), {"value": emit.attribute(f"dense<{[*range(width)]}> : {kind}")})
    return emit.value("arith.addi", kind, emit.value("vector.broadcast", kind, first), numbers.result)


def _joined_bytes(body: Sequence[ir.Operation]) -> dict[ir.Value, ir.Operation]:
    """Return the results that are two bytes, one behind the other in memory, by the load of the first."""
    joined: dict[ir.Value, ir.Operation] = {}
    for op in body:
        if op.name != "arith.ori":
            continue
        for low, high in itertools.permutations(op.operands):
            if producer(high) != "arith.shli" or constant_bound(high.owner.operands[1]) != 8:
                continue
            first, second = _byte(low), _byte(high.owner.operands[0])
            if first is None or second is None or list(first.operands)[1:] != list(second.operands)[1:]:
                continue
            one, other = (Slice.of(op.operands[0]) for op in (first, second))
            if (
                one
                and other
                and (one.memory, one.strides, one.offset + 1) == (other.memory, other.strides, other.offset)
            ):
                joined[op.results[0]] = first
    return joined


def _byte(value: ir.Value) -> ir.Operation | None:
    """Return the load of the byte that ``value`` extends with zeros."""
    if producer(value) == "arith.trunci" and str(value.type) == "i16":
        value = value.owner.operands[0]
    if producer(value) != "arith.andi" or constant_bound(value.owner.operands[1]) != 255:
        return None
    value = value.owner.operands[0]
    if producer(value) != "arith.extsi" or str(value.owner.operands[0].type) != "i8":
        return None
    load = value.owner.operands[0]
    return load.owner if producer(load) == "memref.load" else None


def _load_word(emit: LoopEmitter, kind: ir.Type, buffer: ir.Value, *indices: ir.Value) -> ir.Value:
    """Emit the load of two bytes, the low one first, as an integer."""
    both = emit.value("vector.load", "vector<2xi8>", buffer, *indices)
    word = emit.value("vector.bitcast", "vector<1xi16>", both)
    word = emit.op("vector.extract", ["i16"], [word], {"static_position": emit.array([0])}).result
    return word if str(kind) == "i16" else emit.value("arith.extui", kind, word)


def _sizes(loop: ir.Operation) -> list[int] | None:
    """Return the numbers of iterations of a loop from 0 in steps of 1; None of any other."""
    count = len(loop.regions[0].blocks[0].arguments)
    if loop.results or len(loop.operands) != 3 * count:
        return None
    bounds = [constant_bound(operand) for operand in loop.operands]
    lower, upper, step = (bounds[part * count : part * count + count] for part in range(3))
    sizes = [bound for bound in upper if bound is not None]
    return sizes if lower == [0] * count and step == [1] * count and len(sizes) == count else None


def _is_elementwise(op: ir.Operation) -> bool:
    return op.name in ("memref.load", "memref.store") or (op.name.startswith("arith.") and len(op.results) == 1)
