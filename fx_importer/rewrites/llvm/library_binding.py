"""Binding of the functions that `outline_library_calls` made, on buffers, to their implementations."""

from __future__ import annotations

from collections.abc import Mapping

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.emitter import Emitter, producer
from fx_importer.mlir.functions import body_of
from fx_importer.mlir.walk import operations, rewrite
from fx_importer.rewrites.llvm.blas_calls import define_product, define_tiles
from fx_importer.rewrites.llvm.library_functions import LibraryFunction, Product, library_functions_of
from fx_importer.rewrites.llvm.row_products import define_row_product


@rewrite("fx-importer-bind-library")
def bind_library(module: ir.Operation) -> None:
    """Replace the bodies of the outlined functions, on buffers, by calls of BLAS or of C interfaces."""
    library = library_functions_of(module)
    _take_strides(module, library)
    elements: set[str] = set()
    for op in list(body_of(module)):
        if not isinstance(op, func_d.FuncOp) or op.name.value not in library or op.type.results:
            continue
        kernel = library[op.name.value].kernel
        if isinstance(kernel, Product) and kernel.by_rows and define_row_product(op, kernel):
            continue
        if isinstance(kernel, Product) and not kernel.by_onednn and (element := define_product(op, kernel)):
            elements.add(element)
            continue
        with module.context, op.location, ir.InsertionPoint(op):
            new = func_d.FuncOp(op.name.value, op.type, visibility="private")
            new.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        op.operation.erase()
    define_tiles(module, sorted(elements))


def _take_strides(module: ir.Operation, library: Mapping[str, LibraryFunction]) -> None:
    """Pass operands of dynamic strides as they are.

    MLIR's bufferization casts them to the layout of contiguous tensors, whatever strides they have.
    """
    functions = {
        op.name.value: op
        for op in body_of(module)
        if isinstance(op, func_d.FuncOp) and op.name.value in library and not op.type.results
    }
    calls: dict[str, list[ir.Operation]] = {name: [] for name in functions}
    for call in operations(module.operation, ("func.call",)):
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if name in calls:
            calls[name].append(call)
    for name, function in functions.items():
        inputs = list(function.type.inputs)
        for at, kind in enumerate(inputs):
            sources = [before_cast(call.operands[at]) for call in calls[name]]
            if all(source.type == kind for source in sources):
                continue
            type_ = ir.MemRefType(kind)
            dynamic = ir.MemRefType.get_dynamic_stride_or_offset()
            with module.context, function.location:
                layout = ir.StridedLayoutAttr.get(dynamic, [dynamic] * type_.rank)
                inputs[at] = ir.MemRefType.get(type_.shape, type_.element_type, layout)
            for call, source in zip(calls[name], sources, strict=True):
                call.operands[at] = Emitter.before(call).value("memref.cast", inputs[at], source)
            function.arguments[at].set_type(inputs[at])
        kind = ir.FunctionType.get(inputs, [], module.context)
        function.attributes["function_type"] = ir.TypeAttr.get(kind, module.context)


def before_cast(value: ir.Value) -> ir.Value:
    """Return what a cast from dynamic strides casts; any other value as it is."""
    if producer(value) != "memref.cast" or not isinstance(value.owner.operands[0].type, ir.MemRefType):
        return value
    source = value.owner.operands[0]
    strides, offset = ir.MemRefType(source.type).get_strides_and_offset()
    return source if ir.MemRefType.get_dynamic_stride_or_offset() in (*strides, offset) else value
