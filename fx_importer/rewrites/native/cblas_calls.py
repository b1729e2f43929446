"""Matmuls as calls of the CBLAS that a program is linked with."""

from __future__ import annotations

from collections.abc import Sequence

from fx_importer.mlir.bindings import func_d, ir
from fx_importer.mlir.emit.arith import ArithOps
from fx_importer.mlir.emit.emitter import Size
from fx_importer.mlir.emit.loops import LoopEmitter
from fx_importer.mlir.functions import body_of, functions_of
from fx_importer.mlir.walk import operations, rewrite, rewrite_with_options
from fx_importer.rewrites.llvm.blas_calls import ELEMENT_BYTES, LARGEST_SIZE, matrices_of
from fx_importer.rewrites.llvm.entry_point import write_fact
from fx_importer.rewrites.llvm.library_binding import before_cast
from fx_importer.rewrites.llvm.library_functions import Product, library_functions_of

ROUTINES = "cblas_routines"
"""The fact which functions of CBLAS the module calls, by element type."""
_BYTES = {**ELEMENT_BYTES, "i8": 1, "i32": 4}
"""The bytes of the elements that functions of C take."""
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
"""Values of the enumerations of CBLAS."""
_TOO_LARGE = f"a size of a matmul is larger than {LARGEST_SIZE}, the largest that BLAS takes"


@rewrite_with_options("fx-importer-call-cblas")
def call_cblas(module: ir.Operation, sgemm: str = "cblas_sgemm") -> None:
    """Call CBLAS in place of the functions that `outline_blas_calls` made, on buffers.

    Matrices are passed as memrefs: the element that they begin with. ``sgemm`` is the name of the routine of float32,
    and the one of float64 has another letter. Integers have 64 bits: a BLAS of integers of 32 bits reads the low half.
    """
    library = library_functions_of(module)
    routines: dict[str, str] = {}
    for call in operations(module, ("func.call",)):
        function = library.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
        if function is not None and isinstance(function.kernel, Product):
            element = function.elements[0]
            routines[element] = sgemm if element == "f32" else sgemm.replace("sgemm", "dgemm")
            _replace(call, function.kernel, element, routines[element])
    for name, op in functions_of(module).items():
        if name in library:
            op.operation.erase()
    for element, name in routines.items():
        _declare(module, name, _signature(element))
    write_fact(module, ROUTINES, routines)


def _signature(element: str) -> list[str]:
    matrix = [_begin(element), "i64"]
    return ["i32"] * 3 + ["i64"] * 3 + [element, *matrix, *matrix, element, *matrix]


def _begin(element: str) -> str:
    return f"memref<1x{element}, strided<[1], offset: ?>>"


def _declare(module: ir.Operation, name: str, inputs: Sequence[str]) -> None:
    with module.context, ir.Location.unknown(module.context), ir.InsertionPoint.at_block_begin(body_of(module)):
        func_d.FuncOp(name, ([ir.Type.parse(text) for text in inputs], []), visibility="private")


def _replace(call: ir.Operation, product: Product, element: str, name: str) -> None:
    emit = LoopEmitter.before(call)
    *operands, result = call.operands
    buffers = [_contiguous(emit, buffer, True) for buffer in operands]
    written = _contiguous(emit, result, product.accumulate)
    _emit(emit, product, [*buffers, written], element, name)
    if written != result:
        emit.op("memref.copy", [], [written, before_cast(result)])
    call.erase()


def _contiguous(emit: LoopEmitter, buffer: ir.Value, is_read: bool) -> ir.Value:
    """Return ``buffer``, or contiguous memory in its place if its strides are not known."""
    source = before_cast(buffer)
    if source == buffer:
        return buffer
    kind = ir.MemRefType(buffer.type)
    sizes = [emit.index(emit.size(source, axis)) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    memory = emit.op("memref.alloc", [kind], sizes, {"operandSegmentSizes": emit.segments(len(sizes), 0)}).result
    if is_read:
        emit.op("memref.copy", [], [source, memory])
    return memory


def _emit(emit: LoopEmitter, product: Product, buffers: Sequence[ir.Value], element: str, name: str) -> None:
    """Emit a call for each matrix of the batch."""
    sizes, matrices = matrices_of(emit, buffers, product)
    leading = [matrix.leading for matrix in matrices]
    _check(emit, [*(sizes[letter] for letter in "mnk"), *leading])
    left, right = (
        _AS_IT_IS if letters[-1] == last else _TRANSPOSED
        for letters, last in ((product.left, "k"), (product.right, "n"))
    )
    m, n, k, lda, ldb, ldc = (_i64(emit, size) for size in (*(sizes[letter] for letter in "mnk"), *leading))
    enumerators = [emit.constant_integer(number, emit.type("i32")) for number in (_ROW_MAJOR, left, right)]
    alpha, beta = (emit.constant_scalar(factor, emit.type(element)) for factor in (1.0, float(product.accumulate)))

    def call(inside: LoopEmitter, batch: Size, _: Sequence[ir.Value]) -> Sequence[ir.Value]:
        a, b, c = (_begin_at(inside, matrix.buffer, matrix.offset(inside, b=batch), element) for matrix in matrices)
        inside.call_function(name, [], [*enumerators, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc])
        return []

    if "b" in sizes and sizes["b"] != 1:
        emit.loop(0, sizes["b"], 1, [], call)
    else:
        call(emit, 0, [])


def _check(emit: LoopEmitter, sizes: Sequence[Size]) -> None:
    for size in dict.fromkeys(size for size in sizes if not isinstance(size, int)):
        holds = emit.compare_integers("ult", size, emit.index(LARGEST_SIZE + 1))
        emit.op("cf.assert", [], [holds], {"msg": ir.StringAttr.get(_TOO_LARGE, emit.context)})


def _i64(emit: LoopEmitter, size: Size) -> ir.Value:
    if isinstance(size, int):
        return emit.constant_integer(size, emit.type("i64"))
    return emit.value("arith.index_cast", "i64", size)


def _begin_at(emit: LoopEmitter, buffer: ir.Value, offset: Size, element: str) -> ir.Value:
    """Return the element of ``buffer`` at ``offset``, as a memref of one type for all matrices."""
    static = {"static_offsets": [ir.ShapedType.get_dynamic_size()], "static_sizes": [1], "static_strides": [1]}
    attributes: dict[str, ir.Attribute] = {key: emit.array(numbers) for key, numbers in static.items()}
    attributes["operandSegmentSizes"] = emit.segments(1, 1, 0, 0)
    kind = emit.type(_begin(element))
    return emit.op("memref.reinterpret_cast", [kind], [buffer, emit.index(offset)], attributes).result


@rewrite("fx-importer-pass-addresses")
def pass_addresses(module: ir.Operation) -> None:
    """Pass addresses in place of memrefs to functions of C, which have no body here."""
    functions = {
        name: op
        for name, op in functions_of(module).items()
        if op.is_external and any(isinstance(kind, ir.MemRefType) for kind in op.type.inputs)
    }
    for call in operations(module, ("func.call",)):
        if ir.FlatSymbolRefAttr(call.attributes["callee"]).value in functions:
            emit = ArithOps.before(call)
            for position, value in enumerate(call.operands):
                if isinstance(value.type, ir.MemRefType):
                    call.operands[position] = _address(emit, value)
    for op in functions.values():
        index = ir.IndexType.get(module.context)
        inputs = [index if isinstance(kind, ir.MemRefType) else kind for kind in op.type.inputs]
        kind = ir.FunctionType.get(inputs, op.type.results, module.context)
        op.attributes["function_type"] = ir.TypeAttr.get(kind, module.context)


def _address(emit: ArithOps, buffer: ir.Value) -> ir.Value:
    kind = ir.MemRefType(buffer.type)
    types = [f"memref<{kind.element_type}>", *["index"] * (1 + 2 * kind.rank)]
    _, offset, *_ = emit.op("memref.extract_strided_metadata", types, [buffer]).results
    begin = emit.value("memref.extract_aligned_pointer_as_index", "index", buffer)
    return emit.index_op("addi", begin, emit.index_op("muli", offset, _BYTES[str(kind.element_type)]))
