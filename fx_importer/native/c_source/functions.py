"""Functions of C, from functions of the dialects func, scf, memref, arith, math, complex, affine and cf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fx_importer.diagnostics.mlir_diagnostics import read_location, user_frame
from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import func_d, ir
from fx_importer.native.c_source.affine import affine_text
from fx_importer.native.c_source.buffers import SIZES, VIEWS, Buffer, Number, check_layout, row_major
from fx_importer.native.c_source.control_flow import CONTROL_FLOW
from fx_importer.native.c_source.floats import FLOAT_EXPRESSIONS
from fx_importer.native.c_source.integers import EXTENDED_INTEGERS, INTEGERS
from fx_importer.native.c_source.loop_accesses import accesses_of
from fx_importer.native.c_source.scalars import c_type, constant, paren, plain
from fx_importer.rewrites.native.status_checks import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 70
"""The length of expressions that are written where they are used."""
_NO_EFFECT = ("arith.", "math.", "complex.", "affine.", "memref.dim", "memref.load", "index.", *VIEWS, "memref.view")
_LOOP_NAMES = "ijklmnpqrtuvxyz"
_UNKNOWN = "an operation"
_EXPRESSIONS = INTEGERS | FLOAT_EXPRESSIONS


class FunctionWriter:
    """Writes one function."""

    def __init__(self, constants: Mapping[str, Buffer], view: Callable[[ir.Operation, Buffer, str], Buffer | None]):
        """``constants`` are buffers by symbol; ``view`` returns the buffer that a part of the weights is, or None."""
        self.lines: list[str] = []
        self._constants = constants
        self._view = view
        self._scalars: dict[ir.Value, str] = {}
        self._buffers: dict[ir.Value, Buffer] = {}
        self._reads: set[ir.Value] = set()
        """Values whose text reads memory."""
        self._indent = 1
        self._names = 0
        self._loops = 0
        self._accumulators: dict[ir.Operation, str] = {}
        """The variables that stores of a loop write to."""
        self._where: tuple[tuple[str, ...], str] = ((), "")

    def name_scalar(self, value: ir.Value, text: str) -> None:
        """Write ``text`` where ``value``, a scalar, is used."""
        self._scalars[value] = text

    def name_buffer(self, value: ir.Value, buffer: Buffer) -> None:
        """Access ``buffer`` where ``value`` is used."""
        self._buffers[value] = buffer

    def write(self, block: ir.Block) -> None:
        """Write the operations of the body of a function."""
        for op in block:
            self.operation(op.operation)

    # Lines and names

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append("  " * self._indent + text if text else "")

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(f"{head} {{".strip())
        self._indent += 1
        yield
        self._indent -= 1
        self.line(tail)

    def new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def scalar(self, value: ir.Value) -> str:
        """Return the expression of a scalar."""
        if value not in self._scalars:
            owner = _UNKNOWN if isinstance(value.owner, ir.Block) else value.owner.name
            raise UsageError(f"C source has no value of {owner}: build a library or an object")
        return self._scalars[value]

    def buffer(self, value: ir.Value) -> Buffer:
        """Return a buffer."""
        if value not in self._buffers:
            owner = _UNKNOWN if isinstance(value.owner, ir.Block) else value.owner.name
            raise UsageError(f"C source has no buffer of {owner}: build a library or an object")
        return self._buffers[value]

    # Operations

    def operation(self, op: ir.Operation) -> None:
        name = op.name
        if op.parent is not None and isinstance(op.parent.opview, func_d.FuncOp):
            self._comment(op)
        if name in _STATEMENTS:
            _STATEMENTS[name](self, op)
        elif name == "arith.select" and isinstance(op.results[0].type, ir.MemRefType):
            self._select_buffer(op)
        elif name in _EXPRESSIONS:
            self.define(op, _EXPRESSIONS[name](op, [self.scalar(value) for value in op.operands]))
        elif name in VIEWS:
            self._buffers[op.results[0]] = VIEWS[name](op, self.buffer(op.operands[0]), self.scalar)
        else:
            raise UsageError(f"C source has no form of {name} ({op.location}): build a library or an object")

    def _comment(self, op: ir.Operation) -> None:
        """Write where loops and calls come from, if they come from elsewhere than the ones before."""
        if not op.regions and op.name != "func.call":
            return
        frames, names = read_location(op.location)
        frame = user_frame(frames)
        where = f"{Path(frame[0]).name}:{frame[1]}" if frame else ""
        if (names[:1], where) != self._where and (names or where):
            self._where = (names[:1], where)
            self.line("")
            text = ", ".join(filter(None, [names[0] if names else "", where])).replace("*/", "* /")
            self.line(f"/* {text} */")

    def define(self, op: ir.Operation, text: str, reads: bool = False) -> None:
        """Give the result of ``op`` its expression, or a variable."""
        (result,) = op.results
        uses = list(result.uses)
        if not uses:
            return
        reads = reads or any(value in self._reads for value in op.operands)
        user = uses[0].owner.operation
        near = len(uses) == 1 and user.block == op.operation.block and not (reads and self._changes(op, user))
        if near and len(text) <= _LONGEST:
            self._scalars[result] = text
            if reads:
                self._reads.add(result)
            return
        name = self.new_name("v")
        self.line(f"const {c_type(result.type)} {name} = {plain(text)};")
        self._scalars[result] = name

    def _changes(self, op: ir.Operation, user: ir.Operation) -> bool:
        """Whether memory may change between two operations of a block, or the user runs more than once."""
        if user.regions or user.name in VIEWS or user.name == "memref.view":  # used where the view is
            return True
        following = False
        for other in op.block:
            if other.operation == op.operation:
                following = True
            elif other.operation == user:
                return False
            elif following and not other.operation.name.startswith(_NO_EFFECT):
                return True
        return True

    def _select_buffer(self, op: ir.Operation) -> None:
        condition, left, right = op.operands
        names = self.declare(op.results[0], "const ")
        values = [
            f"{paren(self.scalar(condition))} ? {paren(one)} : {paren(other)}"
            for one, other in zip(self.parts(left), self.parts(right), strict=True)
        ]
        for declared, text in zip(names, values, strict=True):
            self.line(f"{declared} = {text};")

    # Values in variables: a scalar is one, a buffer a pointer with its dynamic sizes and strides

    def parts(self, value: ir.Value) -> list[str]:
        """Return the expressions of the variables that hold ``value``."""
        if not isinstance(value.type, ir.MemRefType):
            return [plain(self.scalar(value))]
        buffer, kind = self.buffer(value), ir.MemRefType(value.type)
        base = (
            f"({c_type(kind.element_type)} *){buffer.pointer}"
            if buffer.element.startswith("const ")
            else buffer.pointer
        )
        pointer = base if buffer.offset == 0 else f"{base} + {paren(str(buffer.offset))}"
        sizes = [str(size) for axis, size in enumerate(buffer.sizes) if kind.is_dynamic_dim(axis)]
        return [pointer, *sizes, *(str(stride) for stride in buffer.strides)]

    def declare(self, value: ir.Value, qualifier: str = "") -> list[str]:
        """Return the declarations of variables for ``value``, and name it."""
        if not isinstance(value.type, ir.MemRefType):
            name = self.new_name("v")
            self._scalars[value] = name
            return [f"{qualifier}{c_type(value.type)} {name}"]
        kind = ir.MemRefType(value.type)
        check_layout(kind)
        name, element = self.new_name("b"), c_type(kind.element_type)
        sizes: list[Number] = [
            f"{name}_d{axis}" if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
        ]
        strides = [f"{name}_s{axis}" for axis in range(kind.rank)]
        self._buffers[value] = Buffer(name, element, tuple(sizes), tuple(strides))
        numbers = [size for size in sizes if isinstance(size, str)] + strides
        return [f"{element} *{name}", *(f"ptrdiff_t {number}" for number in numbers)]

    def _names_of(self, value: ir.Value) -> list[str]:
        return self.parts(value)

    def assign(self, targets: Sequence[ir.Value], values: Sequence[ir.Value]) -> None:
        """Assign at once: no target is read after it is written."""
        pairs = [
            (name, text)
            for target, value in zip(targets, values, strict=True)
            for name, text in zip(self._names_of(target), self.parts(value), strict=True)
            if name != text
        ]
        if len(pairs) > 1:
            kinds = [
                kind
                for target, value in zip(targets, values, strict=True)
                for kind, name, text in zip(self._kinds(target), self._names_of(target), self.parts(value), strict=True)
                if name != text
            ]
            temporaries = [self.new_name("next") for _ in pairs]
            for kind, temporary, (_, text) in zip(kinds, temporaries, pairs, strict=True):
                self.line(f"const {kind} {temporary} = {text};" if "*" not in kind else f"{kind} {temporary} = {text};")
            pairs = [(name, temporary) for (name, _), temporary in zip(pairs, temporaries, strict=True)]
        for name, text in pairs:
            self.line(f"{name} = {text};")

    def _kinds(self, value: ir.Value) -> list[str]:
        if not isinstance(value.type, ir.MemRefType):
            return [c_type(value.type)]
        return [
            f"{self.buffer(value).element.removeprefix('const ')} *",
            *["ptrdiff_t"] * (len(self._names_of(value)) - 1),
        ]

    # Statements

    def _constant(self, op: ir.Operation) -> None:
        self._scalars[op.results[0]] = constant(op.attributes["value"], op.results[0].type)

    def _load(self, op: ir.Operation) -> None:
        source, *indices = op.operands
        if op.results[0] in self._scalars:  # before the loop
            return
        buffer = self.buffer(source)
        text = buffer.at([self.scalar(index) for index in indices])
        self.define(op, text, reads=True)

    def _store(self, op: ir.Operation) -> None:
        value, target, *indices = op.operands
        if op.operation in self._accumulators:
            self.line(f"{self._accumulators[op.operation]} = {plain(self.scalar(value))};")
            return
        element = self.buffer(target).at([self.scalar(index) for index in indices])
        self.line(f"{element} = {plain(self.scalar(value))};")

    def _dim(self, op: ir.Operation) -> None:
        axis = op.operands[1].owner
        if isinstance(axis, ir.Block) or axis.name != "arith.constant":
            raise UsageError(f"C source has no size of an axis that is computed ({op.location})")
        size = self.buffer(op.operands[0]).sizes[ir.IntegerAttr(axis.attributes["value"]).value]
        self._scalars[op.results[0]] = str(size)

    def _get_global(self, op: ir.Operation) -> None:
        self._buffers[op.results[0]] = self._constants[ir.FlatSymbolRefAttr(op.attributes["name"]).value]

    def _view_op(self, op: ir.Operation) -> None:
        source, start, *dynamic = op.operands
        kind = ir.MemRefType(op.results[0].type)
        check_layout(kind)
        base = self.buffer(source)
        known = self._view(op, base, self.scalar(start))
        if known is not None:
            self._buffers[op.results[0]] = known
            return
        values = iter(dynamic)
        sizes = tuple(
            self.scalar(next(values)) if kind.is_dynamic_dim(axis) else kind.shape[axis] for axis in range(kind.rank)
        )
        name, element = self.new_name("t"), c_type(kind.element_type)
        const = "const " if base.element.startswith("const ") else ""
        shape = "x".join(map(str, sizes)) or "a number"
        self.line(
            f"{const}{element} *{name} = ({const}{element} *)({const}void *)({base.pointer} + "
            f"{paren(self.scalar(start))}); /* {shape} */"
        )
        self._buffers[op.results[0]] = Buffer(name, element, sizes, row_major(sizes))

    def _copy(self, op: ir.Operation) -> None:
        source, target = map(self.buffer, op.operands)
        names = [self.new_name("i") for _ in source.sizes]
        if not names:
            self.line(f"{target.at([])} = {source.at([])};")
            return
        for depth, (name, size) in enumerate(zip(names, source.sizes, strict=True)):
            tail = " {" if depth < len(names) - 1 else ""
            self.line(f"for (ptrdiff_t {name} = 0; {name} < {size}; ++{name}){tail}")
            self._indent += 1
        self.line(f"{target.at(names)} = {source.at(names)};")
        self._indent -= 1
        for _ in names[1:]:
            self._indent -= 1
            self.line("}")

    def _assert(self, op: ir.Operation) -> None:
        status = ir.IntegerAttr(op.attributes[STATUS]).value
        condition = self.scalar(op.operands[0])
        if condition != "true":
            self.line(f"if (!{paren(condition)}) return {status};")

    def _affine(self, op: ir.Operation) -> None:
        self.define(op, affine_text(op, [self.scalar(value) for value in op.operands]))

    def before_loop(self, block: ir.Block, variable: ir.Value) -> Sequence[str]:
        """Write, before an innermost loop that runs, what it loads from one place; return the lines for after it.

        A sum that the loop keeps in one place is in a variable. Buffers of different names share no memory.
        """
        accesses = accesses_of(block, variable, self._buffers)
        if accesses is None:
            return ()
        for load in accesses.invariant:
            name = self.new_name("v")
            source, *indices = load.operands
            element = self.buffer(source).at([self.scalar(index) for index in indices])
            self.line(f"const {c_type(load.results[0].type)} {name} = {element};")
            self._scalars[load.results[0]] = name
        if accesses.sum is None:
            return ()
        load, store = accesses.sum
        name = self.new_name("sum")
        source, *indices = load.operands
        element = self.buffer(source).at([self.scalar(index) for index in indices])
        self.line(f"{c_type(load.results[0].type)} {name} = {element};")
        self._scalars[load.results[0]] = name
        self._accumulators[store] = name
        return (f"{element} = {name};",)

    @contextmanager
    def loop(self, variable: ir.Value, low: str, high: str, step: str) -> Iterator[None]:
        depth = self._loops
        name = _LOOP_NAMES[depth] if depth < len(_LOOP_NAMES) else f"i{depth}"
        self._loops += 1
        self._scalars[variable] = name
        kind = c_type(variable.type)
        advance = f"++{name}" if step == "1" else f"{name} += {plain(step)}"
        with self.braces(f"for ({kind} {name} = {plain(low)}; {name} < {plain(high)}; {advance})"):
            yield
        self._loops -= 1

    def body(self, block: ir.Block) -> None:
        *operations, _ = block
        for op in operations:
            self.operation(op.operation)

    def share(self, value: ir.Value, other: ir.Value) -> None:
        """Give ``value`` the variables of ``other``."""
        if isinstance(value.type, ir.MemRefType):
            self._buffers[value] = self._buffers[other]
        else:
            self._scalars[value] = self._scalars[other]

    def _return(self, op: ir.Operation) -> None:
        self.line(f"return {plain(self.scalar(op.operands[0])) if len(op.operands) else 0};")


def _nothing(_: FunctionWriter, __: ir.Operation) -> None:
    """Write nothing: the operation is for optimizers."""


_STATEMENTS: dict[str, Callable[[FunctionWriter, ir.Operation], None]] = {
    **CONTROL_FLOW,
    **EXTENDED_INTEGERS,
    **SIZES,
    "arith.constant": FunctionWriter._constant,
    "complex.constant": FunctionWriter._constant,
    "index.constant": FunctionWriter._constant,
    "index.bool.constant": FunctionWriter._constant,
    "memref.load": FunctionWriter._load,
    "memref.store": FunctionWriter._store,
    "memref.dim": FunctionWriter._dim,
    "memref.get_global": FunctionWriter._get_global,
    "memref.view": FunctionWriter._view_op,
    "memref.copy": FunctionWriter._copy,
    "memref.assume_alignment": _nothing,
    "cf.assert": FunctionWriter._assert,
    "affine.apply": FunctionWriter._affine,
    "affine.min": FunctionWriter._affine,
    "affine.max": FunctionWriter._affine,
    "func.return": FunctionWriter._return,
}
