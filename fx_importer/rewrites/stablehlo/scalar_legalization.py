"""Legalize sizes, shapes and scalars that conversions leave in ``shape``, ``tensor`` and ``arith``.

A scalar becomes a rank-0 tensor; an index has 64 bits. Where possible, sizes are polynomials of the argument sizes, so
that reshapes to an equal shape can be dropped. Broadcast compatibility is not checked: it follows from the input guards
of the exported program.
"""

from __future__ import annotations

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import replace, update_function_type
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.stablehlo import scalar_arithmetic
from fx_importer.rewrites.stablehlo.dimension_sizes import DimensionSizes, Shape, integer_array
from fx_importer.rewrites.stablehlo.integer_emitter import INTEGER, IntegerEmitter
from fx_importer.rewrites.stablehlo.shape_legalization import HANDLERS
from fx_importer.symbolic.polynomials import Atoms, Polynomial, ScalarTensor, constant


@rewrite("fx-importer-scalars-to-stablehlo")
def scalars_to_stablehlo(module: ir.Operation) -> None:
    """Lower arithmetic on sizes and scalars to StableHLO. Report an error for an operation without an equivalent."""
    for op in list(module.regions[0].blocks[0].operations):
        if isinstance(op, func_d.FuncOp) and op.regions[0].blocks:
            _inline_assuming_regions(op.operation)
            _FunctionRewrite(op).run()


def _inline_assuming_regions(function: ir.Operation) -> None:
    for op in operations(function, ("shape.assuming",)):
        *inside, ending = list(op.regions[0].blocks[0].operations)
        for inner in inside:
            inner.move_before(op)
        replace(op, *ending.operands)


class _FunctionRewrite:
    """The legalization of a function; the `FunctionValues` of handlers."""

    def __init__(self, function: func_d.FuncOp):
        self.function = function
        self.sizes = DimensionSizes(Atoms())
        self.atoms = self.sizes.atoms
        self.scalars = self.sizes.scalars
        self.integers: dict[ir.Value, Polynomial] = {}
        """The values of type ``index`` and ``i64``."""
        self.tensors: dict[ir.Value, ir.Value] = {}
        """The rank-0 tensors that replace other scalars."""
        self.emitted: list[dict[Polynomial | Shape, ir.Value]] = []
        """One scope per block around the visited operation; see `IntegerEmitter`."""
        self.replaced: list[ir.Operation] = []

    def run(self) -> None:
        block = self.function.entry_block
        for argument in block.arguments:
            self._convert_type(argument)
        self._equate_symbols()
        self._block(block)
        for op in reversed(self.replaced):  # only now: a new value may have the address of an erased one
            op.erase()
        update_function_type(self.function)

    def _equate_symbols(self) -> None:
        """Record that argument sizes with the same torch.export symbol are equal."""
        if "arg_attrs" not in self.function.attributes:
            return
        sizes: dict[str, Polynomial] = {}
        argument_attributes = ir.ArrayAttr(self.function.attributes["arg_attrs"])
        for argument, attributes in zip(self.function.entry_block.arguments, argument_attributes, strict=True):
            attributes = ir.DictAttr(attributes)
            if "fx_importer.shape" not in attributes or not isinstance(argument.type, ir.RankedTensorType):
                continue
            for axis, size in enumerate(ir.ArrayAttr(attributes["fx_importer.shape"])):
                if isinstance(size, ir.StringAttr) and size.value.isidentifier() and argument.type.is_dynamic_dim(axis):
                    self.sizes.set_size(argument, axis, sizes.setdefault(size.value, self.sizes.along(argument, axis)))

    def _block(self, block: ir.Block) -> None:
        self.emitted.append({})
        for op in list(block.operations):
            emit = IntegerEmitter(op.operation, self.atoms, self.emitted)
            if _lower(self, op.operation, emit):
                self.replaced.append(op.operation)
            elif op.name.startswith(_LEGALIZED) and any(map(self._is_scalar, op.operands)):
                op.location.emit_error(f"'{op.name}' has no form in StableHLO")
            else:
                self._keep(op.operation, emit)
        self.emitted.pop()

    def _keep(self, op: ir.Operation, emit: IntegerEmitter) -> None:
        """Make ``op`` take tensors in place of scalars, or drop it if it returns its operand unchanged."""
        if (same := self._forwarded(op)) is not None:
            op.results[0].replace_all_uses_with(same)
            self.replaced.append(op)
            return
        for result in op.results:
            if isinstance(result.type, ir.RankedTensorType):
                self.sizes.shape_of(result)
                known = self.scalars.value_of(result)
                if known is not None and known.constant is None and str(result.type) == INTEGER:
                    self.replace(result, emit.number(known), known)
                    self.replaced.append(op)
                    return
        for position, operand in enumerate(op.operands):
            if (tensor := self.tensor(operand, emit)) is not None:
                op.operands[position] = tensor
        if op.name == "func.call":
            for result in op.results:
                self._convert_type(result)
        for region in op.regions:
            for block in region.blocks:
                self._block(block)

    def _is_scalar(self, value: ir.Value) -> bool:
        return value in self.integers or value in self.tensors

    def _forwarded(self, op: ir.Operation) -> ir.Value | None:
        """Return the first operand of ``op`` if ``op`` reshapes, slices or broadcasts it to its own shape."""
        if op.name not in _RESHAPING or op.results[0].type != op.operands[0].type:
            return None
        value, result = op.operands[0], op.results[0]
        if op.name == "stablehlo.real_dynamic_slice":
            bounds = [self.sizes.elements_of(operand) for operand in op.operands[1:]]
            limit = self.sizes.shape_of(value)
            start, stride = ((constant(number),) * len(limit) for number in (0, 1))
            return value if bounds == [start, limit, stride] else None
        if op.name == "stablehlo.dynamic_broadcast_in_dim":
            dims = integer_array(op, "broadcast_dimensions")
            if dims != list(range(len(dims))):
                return None
        return value if self.sizes.shape_of(value) == self.sizes.shape_of(result) else None

    def _convert_type(self, value: ir.Value) -> None:
        """Make ``value`` a rank-0 tensor if it is a scalar."""
        kind = _tensor_type(value.type)
        if kind is None:
            return
        value.set_type(kind)
        if str(kind) == INTEGER:
            self.integers[value] = self.atoms.polynomial(ScalarTensor(value))
        else:
            self.tensors[value] = value

    def tensor(self, value: ir.Value, emit: IntegerEmitter) -> ir.Value | None:
        """Return the tensor that replaces ``value``; None if ``value`` stays."""
        if value in self.integers:
            return emit.number(self.integers[value])
        kind = value.type
        if isinstance(kind, ir.RankedTensorType) and kind.rank == 1 and isinstance(kind.element_type, ir.IndexType):
            self.sizes.elements_of(value)  # also of constants, next to tensors of sizes that have another type
        if value in self.sizes.elements:
            return emit.shape_tensor(self.sizes.elements[value])
        return self.tensors.get(value)

    def replace(self, value: ir.Value, tensor: ir.Value, integer: Polynomial | None = None) -> None:
        """Replace the tensor ``value`` by ``tensor``; ``integer`` is its one element, if it is known."""
        if integer is not None:
            self.scalars.set_value(tensor, integer)
        value.replace_all_uses_with(tensor)

    def set_scalar(self, value: ir.Value, tensor: ir.Value) -> None:
        """Record that the rank-0 ``tensor`` replaces ``value``."""
        if str(tensor.type) == INTEGER:
            self.integers[value] = self.atoms.polynomial(ScalarTensor(tensor))
        else:
            self.tensors[value] = tensor


def _lower(values: _FunctionRewrite, op: ir.Operation, emit: IntegerEmitter) -> bool:
    if op.name in HANDLERS:
        return HANDLERS[op.name](values, op, emit)
    return op.name.startswith(("arith.", "math.")) and scalar_arithmetic.lower(values, op, emit)


def _tensor_type(kind: ir.Type) -> ir.Type | None:
    """Return the rank-0 tensor type that replaces the scalar type ``kind``; None if ``kind`` is not a scalar."""
    element = ir.IntegerType.get_signless(64, kind.context) if isinstance(kind, ir.IndexType) else kind
    if not isinstance(element, (ir.IntegerType, ir.F64Type, ir.F32Type, ir.F16Type, ir.BF16Type)):
        return None
    return ir.RankedTensorType.get([], element, loc=ir.Location.unknown(kind.context))


_LEGALIZED = ("arith.", "math.", "shape.", "tensor.")
_RESHAPING = ("stablehlo.dynamic_broadcast_in_dim", "stablehlo.dynamic_reshape", "stablehlo.real_dynamic_slice")
