"""Products of matrices by the BLAS that PyTorch was linked with, in tiles that threads share.

Each tile is computed by one thread, and the tiles depend on the sizes only: so does the order of every sum.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from fx_importer.execution.library_kernels import Product
from fx_importer.execution.parallel_loops import TILES, has_threads
from fx_importer.mlir.bindings import func_d, ir

_ROUTINES = {"f32": "SGEMM", "f64": "DGEMM"}
_THREADS = "MKL_Set_Num_Threads_Local"
_MOST_TILES = 8
_NARROWEST_TILE = 384
"""In columns or rows. MKL packs the other operand again for each tile."""


@functools.cache
def routines() -> dict[str, int]:
    """Return the addresses of MKL's functions in PyTorch; none if it was linked with another BLAS."""
    names = (*_ROUTINES.values(), _THREADS)
    for path in Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"):
        library = ctypes.CDLL(str(path))
        if has_threads() and all(hasattr(library, name) for name in names):
            return {name: int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0) for name in names}
    return {}


def define_product(function: func_d.FuncOp, product: Product) -> str | None:
    """Replace ``function``, on buffers, by one that calls BLAS; return the element type, or None if there is none.

    The new function needs that of `tile_functions`.
    """
    kinds = [ir.MemRefType(each) for each in function.type.inputs if isinstance(each, ir.MemRefType)]
    element = str(kinds[-1].element_type)
    fits = len(kinds) == len(function.type.inputs) == 3 and all(str(each.element_type) == element for each in kinds)
    matrices = all(
        each.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(each.rank, function.context)) for each in kinds
    )
    if any(size >= 2**31 for each in kinds for size in each.shape):  # BLAS takes sizes of 32 bits
        return None
    if not fits or not matrices or not routines() or element not in _ROUTINES:
        return None
    axes = (product.left, product.right, product.result)
    if product.result[-1] != "n" or any(each[-1] == "b" for each in axes):
        return None
    text = _body(function.name.value, element, [str(each) for each in kinds], axes, product.accumulate)
    parsed = ir.Module.parse(text, function.context)  # it owns its operations
    with ir.InsertionPoint(function):
        parsed.body.operations[0].operation.clone()
    function.operation.erase()
    return element


def _body(name: str, element: str, kinds: list[str], axes: tuple[str, str, str], accumulate: bool) -> str:
    lines: list[str] = []
    sizes: dict[str, str] = {}
    for operand, letters in zip("abc", axes, strict=True):
        for position, letter in enumerate(letters):
            if letter not in sizes:
                sizes[letter] = f"%size_{letter}"
                kind = kinds["abc".index(operand)]
                lines.append(f"%at_{letter} = arith.constant {position} : index")
                lines.append(f"{sizes[letter]} = memref.dim %{operand}, %at_{letter} : {kind}")
    sizes.setdefault("b", "%one")
    for operand, letters, kind in zip("abc", axes, kinds, strict=True):
        lines.append(f"%{operand}_begin = memref.extract_aligned_pointer_as_index %{operand} : {kind} -> index")
        stride = "%bytes"
        for letter in reversed(letters):
            lines.append(f"%{operand}_{letter} = arith.muli {stride}, %one : index")
            lines.append(f"%{operand}_next_{letter} = arith.muli {stride}, {sizes[letter]} : index")
            stride = f"%{operand}_next_{letter}"
        if "b" not in letters:
            lines.append(f"%{operand}_b = arith.constant 0 : index")
    # Fortran's matrices are column-major: it computes the transposed result, of the transposed operands.
    flags = [78 if letters[-1] == last else 84 for letters, last in ((axes[1], "n"), (axes[0], "k"))]
    leading = [letters.replace("b", "")[0] for letters in (axes[1], axes[0], axes[2])]
    lead = [f"%lead_{operand}" for operand in "bac"]
    for value, operand, letter in zip(lead, "bac", leading, strict=True):
        lines.append(f"{value}_exact = arith.divui %{operand}_{letter}, %bytes : index")
        lines.append(f"{value} = arith.maxui {value}_exact, %one : index")  # of empty matrices too
    beta = "1.0" if accumulate else "0.0"
    body = "\n    ".join(lines)
    return f"""
func.func private @{name}(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[2]}) {{
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %bytes = arith.constant {4 if element == "f32" else 8} : index
    {body}
    %wide = arith.cmpi sge, %size_n, %size_m : index
    %most = arith.constant {_MOST_TILES} : index
    %narrowest = arith.constant {_NARROWEST_TILE} : index
    %length = arith.select %wide, %size_n, %size_m : index
    %fitting = arith.divui %length, %narrowest : index
    %some = arith.maxui %fitting, %one : index
    %wanted = arith.minui %some, %most : index
    %even = arith.ceildivui %length, %wanted : index
    %tile = arith.maxui %even, %one : index
    %tiles = arith.ceildivui %length, %tile : index
    %count = arith.muli %tiles, {sizes["b"]} : index
    scf.parallel (%i) = (%zero) to (%count) step (%one) {{
      %batch = arith.divui %i, %tiles : index
      %number = arith.remui %i, %tiles : index
      %from = arith.muli %number, %tile : index
      %rest = arith.subi %length, %from : index
      %width = arith.minui %tile, %rest : index
      %m0 = arith.select %wide, %zero, %from : index
      %n0 = arith.select %wide, %from, %zero : index
      %m = arith.select %wide, %size_m, %width : index
      %n = arith.select %wide, %width, %size_n : index
      %a0 = arith.muli %batch, %a_b : index
      %a1 = arith.muli %m0, %a_m : index
      %a2 = arith.addi %a0, %a1 : index
      %a3 = arith.addi %a2, %a_begin : index
      %b0 = arith.muli %batch, %b_b : index
      %b1 = arith.muli %n0, %b_n : index
      %b2 = arith.addi %b0, %b1 : index
      %b3 = arith.addi %b2, %b_begin : index
      %c0 = arith.muli %batch, %c_b : index
      %c1 = arith.muli %m0, %c_m : index
      %c2 = arith.muli %n0, %c_n : index
      %c3 = arith.addi %c0, %c1 : index
      %c4 = arith.addi %c3, %c2 : index
      %c5 = arith.addi %c4, %c_begin : index
      %beta = arith.constant {beta} : {element}
      %right = arith.constant {flags[0]} : i8
      %left = arith.constant {flags[1]} : i8
      func.call @{_TILE}{element}(%right, %left, %n, %m, %size_k, %b3, {lead[0]}, %a3, {lead[1]}, %beta, %c5, {lead[2]})
        : (i8, i8, index, index, index, index, index, index, index, {element}, index, index) -> ()
      scf.reduce
    }} {{{TILES}}}
    return
}}
func.func private @{_TILE}{element}(i8, i8, index, index, index, index, index, index, index, {element}, index, index)
"""


_TILE = "fx_importer_tile_"


def tile_functions(element: str) -> str:
    """Return the function of one tile, on the calling thread only."""
    integers = ("n", "m", "k", "ldb", "lda", "ldc")
    stored = "\n  ".join(
        f"%{each}_32 = arith.index_cast %{each} : index to i32\n"
        f"  %{each}_at = llvm.alloca %one x i32 : (i32) -> !llvm.ptr\n"
        f"  llvm.store %{each}_32, %{each}_at : i32, !llvm.ptr"
        for each in integers
    )
    pointers = "\n  ".join(
        f"%{each}_64 = arith.index_cast %{each} : index to i64\n"
        f"  %{each}_at = llvm.inttoptr %{each}_64 : i64 to !llvm.ptr"
        for each in ("a", "b", "c")
    )
    return f"""
func.func private @{_TILE}{element}(%right: i8, %left: i8, %n: index, %m: index, %k: index, %b: index, %ldb: index,
    %a: index, %lda: index, %beta: {element}, %c: index, %ldc: index) attributes {{llvm.passthrough = ["noinline"]}} {{
  %one = arith.constant 1 : i32
  {stored}
  {pointers}
  %alpha = arith.constant 1.0 : {element}
  %alpha_at = llvm.alloca %one x {element} : (i32) -> !llvm.ptr
  llvm.store %alpha, %alpha_at : {element}, !llvm.ptr
  %beta_at = llvm.alloca %one x {element} : (i32) -> !llvm.ptr
  llvm.store %beta, %beta_at : {element}, !llvm.ptr
  %right_at = llvm.alloca %one x i8 : (i32) -> !llvm.ptr
  llvm.store %right, %right_at : i8, !llvm.ptr
  %left_at = llvm.alloca %one x i8 : (i32) -> !llvm.ptr
  llvm.store %left, %left_at : i8, !llvm.ptr
  %before = llvm.call @{_THREADS}(%one) : (i32) -> i32
  llvm.call @{_ROUTINES[element]}(%right_at, %left_at, %n_at, %m_at, %k_at, %alpha_at, %b_at, %ldb_at, %a_at, %lda_at,
    %beta_at, %c_at, %ldc_at) : ({", ".join(["!llvm.ptr"] * 13)}) -> ()
  %again = llvm.call @{_THREADS}(%before) : (i32) -> i32
  return
}}
llvm.func @{_ROUTINES[element]}({", ".join(["!llvm.ptr"] * 13)})
llvm.func @{_THREADS}(i32) -> i32
"""
