"""Sizes, shapes and numbers, which conversions say in ``shape``, ``tensor`` and ``arith``, in StableHLO's operations.

A number is a rank-0 tensor; an index has 64 bits. Sizes are polynomials of the sizes of what the function takes, as far
as they can be, so that what only makes a size of an equal one is left out. Nothing checks that shapes can be broadcast:
the exported program has guards on its inputs, from which it follows.
"""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.rewrites.stablehlo import scalar_arithmetic
from fx_importer.rewrites.stablehlo.dimension_sizes import Extents, Shape, integers
from fx_importer.rewrites.stablehlo.integer_emitter import INTEGER, IntegerEmitter
from fx_importer.rewrites.stablehlo.shape_legalization import HANDLERS
from fx_importer.rewrites.stablehlo.size_polynomials import Atoms, Integer, Number, constant


def numbers_to_stablehlo(module: ir.Operation) -> None:
    """Say what is computed of sizes and numbers in StableHLO. What cannot be is reported, and left."""
    for op in list(module.regions[0].blocks[0].operations):
        if isinstance(op, func_d.FuncOp) and op.regions[0].blocks:
            _inline_assumptions(op.operation)
            _Function(op).rewrite()


def _inline_assumptions(function: ir.Operation) -> None:
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "shape.assuming":
            found.append(op)
        return ir.WalkResult.ADVANCE

    function.walk(visit)  # innermost first
    for op in found:
        *inside, ending = list(op.regions[0].blocks[0].operations)
        for each in inside:
            each.move_before(op)
        for result, value in zip(op.results, ending.operands, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


class _Function:
    """The rewrite of a function."""

    def __init__(self, function: func_d.FuncOp):
        self.function = function
        self.extents = Extents(Atoms())
        self.atoms = self.extents.atoms
        self.scalars = self.extents.scalars
        self.integers: dict[ir.Value, Integer] = {}
        """What is known of values of type ``index`` and ``i64``."""
        self.numbers: dict[ir.Value, ir.Value] = {}
        """The rank-0 tensors of other numbers."""
        self.said: list[dict[Integer | Shape, ir.Value]] = []
        self.done: list[ir.Operation] = []

    def rewrite(self) -> None:
        block = self.function.entry_block
        for argument in block.arguments:
            self._carry(argument)
        self._tell_symbols()
        self._block(block)
        for op in reversed(self.done):  # only now: a value that is gone may have the address of a later one
            op.erase()
        types = [[each.type for each in values] for values in (block.arguments, block.operations[-1].operands)]
        with self.function.context:
            self.function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))

    def _tell_symbols(self) -> None:
        """Sizes of arguments that torch.export gives one name are one."""
        if "arg_attrs" not in self.function.attributes:
            return
        sizes: dict[str, Integer] = {}
        given = ir.ArrayAttr(self.function.attributes["arg_attrs"])
        for argument, attributes in zip(self.function.entry_block.arguments, given, strict=True):
            attributes = ir.DictAttr(attributes)
            if "fx_importer.shape" not in attributes or not isinstance(argument.type, ir.RankedTensorType):
                continue
            for axis, size in enumerate(ir.ArrayAttr(attributes["fx_importer.shape"])):
                if isinstance(size, ir.StringAttr) and size.value.isidentifier() and argument.type.is_dynamic_dim(axis):
                    self.extents.tell(argument, axis, sizes.setdefault(size.value, self.extents.along(argument, axis)))

    def _block(self, block: ir.Block) -> None:
        self.said.append({})
        for op in list(block.operations):
            emit = IntegerEmitter(op.operation, self.atoms, self.said)
            if _lower(self, op.operation, emit):
                self.done.append(op.operation)
            elif op.name.startswith(_FOREIGN) and any(map(self._is_number, op.operands)):
                op.location.emit_error(f"'{op.name}' has no form in StableHLO")
            else:
                self._keep(op.operation, emit)
        self.said.pop()

    def _keep(self, op: ir.Operation, emit: IntegerEmitter) -> None:
        """Let ``op`` take tensors where it took numbers; and leave it out if it would change nothing."""
        if (same := self._forwarded(op)) is not None:
            op.results[0].replace_all_uses_with(same)
            self.done.append(op)
            return
        for result in op.results:
            if isinstance(result.type, ir.RankedTensorType):
                self.extents.of(result)
                known = self.scalars.of(result)
                if known is not None and known.constant is None and str(result.type) == INTEGER:
                    self.stand_in(result, emit.number(known), known)
                    self.done.append(op)
                    return
        for position, operand in enumerate(op.operands):
            if (tensor := self.tensor(operand, emit)) is not None:
                op.operands[position] = tensor
        if op.name == "func.call":
            for result in op.results:
                self._carry(result)
        for region in op.regions:
            for block in region.blocks:
                self._block(block)

    def _is_number(self, value: ir.Value) -> bool:
        return value in self.integers or value in self.numbers

    def _forwarded(self, op: ir.Operation) -> ir.Value | None:
        """Return the operand that the result of ``op`` is, if ``op`` gives it the shape that it has."""
        if op.name not in _RESHAPING or op.results[0].type != op.operands[0].type:
            return None
        value, result = op.operands[0], op.results[0]
        if op.name == "stablehlo.real_dynamic_slice":
            held = [self.extents.held(operand) for operand in op.operands[1:]]
            whole = (constant(0),) * len(self.extents.of(value)), self.extents.of(value)
            one = (constant(1),) * len(whole[0])
            return value if held == [*whole, one] else None
        if op.name == "stablehlo.dynamic_broadcast_in_dim":
            dims = integers(op, "broadcast_dimensions")
            if dims != list(range(len(dims))):
                return None
        return value if self.extents.of(value) == self.extents.of(result) else None

    def _carry(self, value: ir.Value) -> None:
        """Make ``value`` a rank-0 tensor, if it is a number."""
        kind = tensor_of(value.type)
        if kind is None:
            return
        value.set_type(kind)
        if str(kind) == INTEGER:
            self.integers[value] = self.atoms.integer(Number(value))
        else:
            self.numbers[value] = value

    def tensor(self, value: ir.Value, emit: IntegerEmitter) -> ir.Value | None:
        """Return the tensor that stands for ``value``; None, if that is ``value``."""
        if value in self.integers:
            return emit.number(self.integers[value])
        if value in self.extents.shapes:
            return emit.shape(self.extents.shapes[value])
        return self.numbers.get(value)

    def stand_in(self, value: ir.Value, tensor: ir.Value, integer: Integer | None = None) -> None:
        """Let ``tensor`` take the place of ``value``, a tensor too."""
        if integer is not None:
            self.scalars.tell(tensor, integer)
        value.replace_all_uses_with(tensor)

    def know(self, value: ir.Value, number: ir.Value) -> None:
        """Let the rank-0 tensor ``number`` stand for ``value``."""
        if str(number.type) == INTEGER:
            self.integers[value] = self.atoms.integer(Number(number))
        else:
            self.numbers[value] = number


def _lower(this: _Function, op: ir.Operation, emit: IntegerEmitter) -> bool:
    if op.name in HANDLERS:
        return HANDLERS[op.name](this, op, emit)
    return op.name.startswith(("arith.", "math.")) and scalar_arithmetic.lower(this, op, emit)


def tensor_of(kind: ir.Type) -> ir.Type | None:
    """Return the rank-0 tensor that holds a number of the type ``kind``; None, if that is no number."""
    if isinstance(kind, ir.IndexType):
        return ir.RankedTensorType.get([], ir.IntegerType.get_signless(64, kind.context), loc=_unknown(kind))
    if isinstance(kind, (ir.IntegerType, ir.F64Type, ir.F32Type, ir.F16Type, ir.BF16Type)):
        return ir.RankedTensorType.get([], kind, loc=_unknown(kind))
    return None


def _unknown(kind: ir.Type) -> ir.Location:
    return ir.Location.unknown(kind.context)


_FOREIGN = ("arith.", "math.", "shape.", "tensor.")
_RESHAPING = ("stablehlo.dynamic_broadcast_in_dim", "stablehlo.dynamic_reshape", "stablehlo.real_dynamic_slice")
