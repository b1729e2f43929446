"""Variables of a module, such as the seed of random numbers, as memory of a call."""

from __future__ import annotations

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import replace
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.entry_point import entry_point


@rewrite("fx-importer-localize-variables")
def localize_variables(module: ir.Operation) -> None:
    """Turn each ``memref.global`` that is not constant into a buffer with its initial value in each call.

    Threads then share no variable, and random numbers begin with the same seed in each call.

    Raises:
        UsageError: for a variable of several elements.
    """
    function = entry_point(module)
    for variable in operations(module, ("memref.global",)):
        if "constant" in variable.attributes:
            continue
        name = ir.StringAttr(variable.attributes["sym_name"]).value
        kind = ir.MemRefType(ir.TypeAttr(variable.attributes["type"]).value)
        if kind.rank:
            raise UsageError(f"the variable '{name}' of the module has several elements: native code has scalars only")
        start = ArithOps(ir.InsertionPoint.at_block_begin(function.entry_block), function.location)
        buffer = start.op("memref.alloc", [kind], [], {"operandSegmentSizes": start.segments(0, 0)}).result
        initial = ir.DenseElementsAttr(variable.attributes["initial_value"]).get_splat_value()
        value = start.op("arith.constant", [kind.element_type], [], {"value": initial}).result
        start.op("memref.store", [], [value, buffer])
        for use in operations(module, ("memref.get_global",)):
            if ir.FlatSymbolRefAttr(use.attributes["name"]).value == name:
                replace(use, buffer)
        variable.erase()
