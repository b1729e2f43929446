"""Extraction of each operator of a module into a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter
from fx_importer.mlir.types import is_torch_tensor, short_text
from fx_importer.mlir.walk import operations

_UNPACKING = ("torch.aten.__getitem__.t", "torch.prim.ListUnpack", "torch.prim.TupleUnpack", "torch.prim.TupleIndex")
_SCALARS = {
    "!torch.int": "torch.constant.int 2",
    "!torch.float": "torch.constant.float 5.000000e-01",
    "!torch.bool": "torch.constant.bool true",
}
"""Scalar types and a constant of each."""
_SIZES = (
    "torch.aten.size.int",
    "torch.aten.numel",
    "torch.aten.dim",
    "torch.aten.sym_size.int",
    "torch.aten.sym_numel",
)
_MAX_CONSTANT_ELEMENTS = 64
"""Larger constant tensors are replaced by splats."""


@dataclass
class Probe:
    """A module with one operator, and the calls in the program that it stands for."""

    text: str
    """The module. Tensors are function arguments; scalars and lists are computed inside. Large constants are splats."""
    op: str
    """The overload, ``aten.add.Tensor``."""
    call: str
    """The overload with its operands."""
    calls: dict[ir.Operation, None] = field(default_factory=dict[ir.Operation, None])
    """Calls in program order, as dictionary keys."""
    inside: list[Probe] = field(default_factory=list)
    """Probes of the operators in its regions."""
    numbers: dict[ir.Operation, None] = field(default_factory=dict[ir.Operation, None])
    """Operators that read its scalar operands from values of tensors."""
    fixed: str | None = None
    """``text`` with constants for these scalars, if there are any."""


def probes_of(module: ir.Operation) -> list[Probe]:
    """Return a probe for each distinct operator call in ``module``, in the order of first calls.

    An operator with regions comes after the operators in them. ``module`` is in the torch dialect, as imported.
    """
    probes: dict[str, Probe] = {}
    for function in module.regions[0].blocks[0].operations:
        if isinstance(function.operation.opview, func_d.FuncOp):
            for region in function.regions:
                _collect(region, function.operation, probes)
    return list(probes.values())


def _collect(region: ir.Region, function: ir.Operation, by_text: dict[str, Probe]) -> list[Probe]:
    probes = []
    for block in region.blocks:
        for view in block.operations:
            op = view.operation
            inside = [probe for inner_op in op.regions for probe in _collect(inner_op, function, by_text)]
            if not _has_probe(op):
                continue
            text = extract(op, function)
            blamed = _producer(op)
            probe = by_text.get(text)
            numbers = {inner_op: None for inner_op in _closure(op) if inner_op != op and _reads_scalar(inner_op)}
            if probe is None:
                fixed = extract(op, function, numbers) if numbers else None
                probe = by_text[text] = Probe(text, overload(blamed), call_of(blamed), inside=inside, fixed=fixed)
            probe.calls[blamed] = None
            probe.numbers |= numbers
            probes.append(probe)
    return probes


def _has_probe(op: ir.Operation) -> bool:
    if not op.name.startswith("torch.") or op.name.startswith(("torch.constant.", "torch.vtensor.literal")):
        return False
    # Operators that create a list or a scalar are part of the probe of their user.
    return bool(op.regions) or any(is_torch_tensor(result.type) or _is_returned(result) for result in op.results)


def _is_returned(value: ir.Value) -> bool:
    return any(use.owner.name == "func.return" for use in value.uses)


def _reads_scalar(op: ir.Operation) -> bool:
    """Return whether ``op`` reads a value of a tensor, and not its size, which the operator has to take."""
    if op.name in _SIZES:
        return False
    results = [str(result.type) for result in op.results]
    return (
        len(results) == 1 and results[0] in _SCALARS and any(is_torch_tensor(operand.type) for operand in op.operands)
    )


def _producer(op: ir.Operation) -> ir.Operation:
    """Return the operator whose result ``op`` unpacks, or ``op``."""
    while op.name in _UNPACKING and (maker := maker_of(op.operands[0])):
        op = maker
    return op


def maker_of(value: ir.Value) -> ir.Operation | None:
    """Return the defining operation of ``value``; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def overload(op: ir.Operation) -> str:
    """Return the overload name of an operator: ``aten.mm.default``."""
    name = ir.StringAttr(op.attributes["name"]).value if op.name == "torch.operator" else op.name
    name = name.removeprefix("torch.")
    return name if name.count(".") > 1 or name.startswith("prim.") else f"{name}.default"


def call_of(op: ir.Operation) -> str:
    """Return the overload with types or values of its operands and types of its results."""
    results = ", ".join(short_text(result.type) for result in op.results)
    return f"{overload(op)}({', '.join(map(_operand, op.operands))}) -> {results or 'nothing'}"


def _operand(value: ir.Value) -> str:
    match maker := maker_of(value):
        case ir.Operation(name="torch.constant.none"):
            return "None"
        case ir.Operation(name="torch.constant.bool"):
            return str(bool(ir.IntegerAttr(maker.attributes["value"]).value))
        case ir.Operation(name="torch.constant.int"):
            return str(ir.IntegerAttr(maker.attributes["value"]).value)
        case ir.Operation(name="torch.constant.float"):
            return repr(ir.FloatAttr(maker.attributes["value"]).value)
        case ir.Operation(name="torch.constant.str"):
            return repr(ir.StringAttr(maker.attributes["value"]).value)
        case ir.Operation(name="torch.prim.ListConstruct"):
            return f"[{', '.join(map(_operand, maker.operands))}]"
        case _:
            return short_text(value.type)


def _is_returnable(type_: ir.Type) -> bool:
    return is_torch_tensor(type_) or str(type_) in _SCALARS


def extract(op: ir.Operation, function: ir.Operation, fixed: Collection[ir.Operation] = ()) -> str:
    """Return the text of a module with a function that computes ``op`` of ``function`` and returns its used results.

    The function has the attributes of ``function``. Operations in ``fixed`` are replaced by constants.
    """
    needed = dict.fromkeys(_closure(op, fixed))
    arguments: dict[ir.Value, None] = {}
    for needed_op in needed:
        for value in _captured(needed_op) if needed_op not in fixed else ():
            maker = maker_of(value)
            if maker is None or maker not in needed:
                arguments.setdefault(value)
    results = [result for result in op.results if _is_returnable(result.type) and any(result.uses)]
    module = ir.Module.create(ir.Location.unknown(op.context))
    with ir.Location.unknown(op.context), ir.InsertionPoint(module.body):
        kind = ir.FunctionType.get([value.type for value in arguments], [result.type for result in results])
        made = func_d.FuncOp("main", kind)
        for name in function.attributes:
            if name.startswith("torch."):
                made.operation.attributes[name] = function.attributes[name]
        block = made.add_entry_block()
        known: dict[ir.Value, ir.Value] = dict(zip(arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for needed_op in needed:
                copy = _constant(needed_op) if needed_op in fixed else _splat(needed_op) or needed_op.clone()
                _rename(copy, known)
                known.update(zip(needed_op.results, copy.results, strict=True))
            func_d.ReturnOp([known[result] for result in results])
    return module.operation.get_asm(use_local_scope=True, assume_verified=True)


def _closure(op: ir.Operation, ends: Collection[ir.Operation] = ()) -> Iterator[ir.Operation]:
    """Yield the operations that compute scalar, list and constant operands of ``op``, transitively, and then ``op``.

    The operands of operations in ``ends`` are not followed.
    """
    seen: set[ir.Operation] = set()

    def visit(visited: ir.Operation) -> Iterator[ir.Operation]:
        if visited in seen:
            return
        seen.add(visited)
        for value in _captured(visited) if visited not in ends else ():
            maker = maker_of(value)
            if maker and (maker.name == "torch.vtensor.literal" or not is_torch_tensor(value.type)):
                yield from visit(maker)
        yield visited

    yield from visit(op)


def _captured(op: ir.Operation) -> list[ir.Value]:
    """Return the operands of ``op`` and the values that its regions capture."""
    values = list(op.operands)
    if op.regions:
        inner: set[ir.Value] = set()
        used: list[ir.Value] = []

        def see(inner_op: ir.Operation) -> ir.WalkResult:
            inner.update(inner_op.results)
            for region in inner_op.regions:
                for block in region.blocks:
                    inner.update(block.arguments)
            if inner_op != op:
                used.extend(inner_op.operands)
            return ir.WalkResult.ADVANCE

        op.walk(see, ir.WalkOrder.PRE_ORDER)
        values.extend(value for value in used if value not in inner)
    return values


def _rename(op: ir.Operation, known: Mapping[ir.Value, ir.Value]) -> None:
    for operation in operations(op):
        for position, value in enumerate(operation.operands):
            if value in known:
                operation.operands[position] = known[value]


def _splat(op: ir.Operation) -> ir.Operation | None:
    """Return a splat constant of the type of ``op`` if that is a large constant, else None."""
    if op.name != "torch.vtensor.literal":
        return None
    try:
        value = op.attributes["value"]
    except TypeError:  # a complex ``dense``, which the bindings cannot read
        return None
    kind = ir.ShapedType(value.type)
    if isinstance(value, ir.DenseElementsAttr) and _count(kind) <= _MAX_CONSTANT_ELEMENTS:
        return None
    element = kind.element_type
    number = "3" if isinstance(element, ir.IntegerType) else "3.7e-01"
    if isinstance(element, ir.IntegerType) and element.width == 1:
        number = "true"
    if isinstance(element, ir.ComplexType):
        number = f"({number}, {number})"
    return _inserted(f"torch.vtensor.literal(dense<{number}> : {kind}) : {op.results[0].type}")


def _constant(op: ir.Operation) -> ir.Operation:
    """Return a scalar constant of the result type of ``op``."""
    return _inserted(_SCALARS[str(op.results[0].type)])


def _inserted(text: str) -> ir.Operation:
    return Emitter(ir.InsertionPoint.current, ir.Location.current).parsed(text)


def _count(kind: ir.ShapedType) -> int:
    count = 1
    for size in kind.shape:
        count *= size
    return count
