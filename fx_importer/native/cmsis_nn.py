"""CMSIS-NN, Arm's library of int8 layers for Cortex-M, which native code calls: from a folder of its source."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fx_importer.errors import UsageError
from fx_importer.mlir.bindings import ir
from fx_importer.mlir.walk import operations
from fx_importer.native.targets import NativeTarget
from fx_importer.native.toolchain import compile_file
from fx_importer.pipelines.native import cmsis_nn_layers
from fx_importer.pipelines.runner import run_stage
from fx_importer.rewrites.llvm.entry_point import read_fact
from fx_importer.rewrites.native.cmsis_nn_calls import CONVOLUTIONS, LAYERS, CmsisLayer

HEADER = "arm_nnfunctions.h"
ROUNDING = "CMSIS_NN_USE_SINGLE_ROUNDING"
"""The macro with which CMSIS-NN rounds as TOSA's ``SINGLE_ROUND``: to the nearest number, upwards from the middle."""
_CONVOLVE, _DEPTHWISE = "arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8"
_SIZE = "_get_buffer_size"
_FUNCTIONS = tuple(f"{name}{suffix}" for name in (_CONVOLVE, _DEPTHWISE) for suffix in ("", _SIZE))
_DEFINED = re.compile(r"^(?!static\b|__STATIC|typedef\b|extern\b)[A-Za-z_][\w \t*]*?\b(arm_\w+)\s*\(", re.MULTILINE)


@dataclass(frozen=True)
class CmsisNn:
    """The source of CMSIS-NN, and the layers that call it."""

    folder: Path
    layers: tuple[CmsisLayer, ...] = ()

    @property
    def functions(self) -> list[str]:
        """The functions that layers call."""
        return [*dict.fromkeys(_DEPTHWISE if layer.depthwise else _CONVOLVE for layer in self.layers)]

    @property
    def includes(self) -> Path:
        return self.folder / "Include"

    def sources(self) -> Mapping[Path, Sequence[str]]:
        """Return the files that define what layers call, and what these call, with the names that each defines."""
        texts = _texts(self.folder)
        defined = {path: _DEFINED.findall(text) for path, text in texts.items()}
        places = {name: path for path, names in defined.items() for name in names}
        pending = [f"{name}{suffix}" for name in self.functions for suffix in ("", _SIZE)]
        needed: dict[Path, Sequence[str]] = {}
        while pending:
            path = places.get(pending.pop())
            if path is not None and path not in needed:
                needed[path] = defined[path]
                pending += re.findall(r"\barm_\w+", texts[path])
        return needed


def find_cmsis_nn(folder: str | os.PathLike[str]) -> CmsisNn:
    """Return the CMSIS-NN in ``folder``.

    Raises:
        UsageError: if there is none.
    """
    path = Path(folder).absolute()
    if not (path / "Include" / HEADER).is_file():
        raise UsageError(f"cmsis_nn='{folder}' is not a folder of CMSIS-NN: it has no Include/{HEADER}")
    names = {name for text in _texts(path).values() for name in _DEFINED.findall(text)}
    if missing := next((name for name in _FUNCTIONS if name not in names), None):
        raise UsageError(f"cmsis_nn='{folder}' is not a folder of CMSIS-NN: no file in Source/ defines {missing}")
    return CmsisNn(path)


def _texts(folder: Path) -> Mapping[Path, str]:
    return {path: path.read_text("utf-8", "replace") for path in sorted((folder / "Source").rglob("*.c"))}


def with_layers(cmsis: CmsisNn, module: ir.Module, library: str) -> CmsisNn:
    """Return ``cmsis`` with the layers of ``module`` that now call functions of `layer_functions`.

    Raises:
        UsageError: if the module is not TOSA, or has no convolutions and linear layers of int8.
    """
    convolutions = operations(module.operation, CONVOLUTIONS)
    if all(str(ir.ShapedType(op.operands[0].type).element_type) != "i8" for op in convolutions):
        raise UsageError(
            "CMSIS-NN computes convolutions and linear layers of int8, and this module has none: quantize the model, "
            "and lower it with output_type='tosa' and quantized='integer'"
        )
    for stage in cmsis_nn_layers(library).stages:
        run_stage(stage, module)
    return replace(cmsis, layers=tuple(CmsisLayer(**fields) for fields in read_fact(module, LAYERS)))


def layer_functions(cmsis: CmsisNn, linkage: str = "") -> str:
    """Return the functions of layers in C."""
    head = f"""#include <{HEADER}>
#ifndef {ROUNDING}
#error "compile this file and CMSIS-NN with -D{ROUNDING}, with which results are the same bits"
#endif
"""
    return "\n".join((head, *(_definition(layer, linkage) for layer in cmsis.layers)))


def _definition(layer: CmsisLayer, linkage: str) -> str:
    kind, name = ("dw_conv", _DEPTHWISE) if layer.depthwise else ("conv", _CONVOLVE)
    multiple = f".ch_mult = {layer.output[3] // layer.image[3]}, " if layer.depthwise else ""
    tiles = ", ".join(
        f".{field} = {{.w = {width}, .h = {height}}}"
        for field, (height, width) in (
            ("stride", layer.stride),
            ("padding", layer.padding),
            ("dilation", layer.dilation),
        )
    )
    shapes = "\n".join(
        f"  const cmsis_nn_dims {field}_dims = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"
        for field, (n, h, w, c) in (
            ("input", layer.image),
            ("filter", layer.filter),
            ("bias", (1, 1, 1, layer.output[3])),
            ("output", layer.output),
        )
    )
    return f"""{linkage}int32_t {layer.name}(const int8_t *input, const int8_t *filter, const int32_t *bias,
    int8_t *output, int8_t *scratch) {{
{_array("multipliers", layer.multipliers)}
{_array("shifts", layer.shifts)}
  const cmsis_nn_context context = {{.buf = scratch, .size = {layer.scratch}}};
  const cmsis_nn_{kind}_params params = {{
    .input_offset = {layer.input_offset}, .output_offset = {layer.output_offset}, {multiple}
    {tiles},
    .activation = {{.min = {layer.low}, .max = {layer.high}}}}};
  const cmsis_nn_per_channel_quant_params scales = {{(int32_t *)multipliers, (int32_t *)shifts}};
{shapes}
  if ((uint32_t){name}{_SIZE}(&params, &input_dims, &filter_dims, &output_dims) > {layer.scratch}) return 1;
  return {name}(&context, &params, &scales, &input_dims, input, &filter_dims, filter, &bias_dims, bias,
    &output_dims, output) != ARM_CMSIS_NN_SUCCESS;
}}
"""


def _array(name: str, numbers: Sequence[int]) -> str:
    lines = [", ".join(map(str, numbers[at : at + 8])) for at in range(0, len(numbers), 8)]
    return f"  static const int32_t {name}[{len(numbers)}] = {{\n    " + ",\n    ".join(lines) + "};"


def compile_layers(cmsis: CmsisNn, library: str, target: NativeTarget, folder: Path) -> list[Path]:
    """Compile the functions of layers, and what they call of CMSIS-NN, whose names begin with ``library`` then.

    Raises:
        UsageError: if CMSIS-NN is not for ``target``.
    """
    if not cmsis.layers:
        return []
    sources = cmsis.sources()
    (layers := folder / "layers.c").write_text(layer_functions(cmsis), encoding="utf-8")
    (headers := folder / "c_library").mkdir()
    if target.is_bare:  # Zig has no C library for it
        for name in ("math.h", "stdio.h", "stdlib.h"):  # included, but not called
            (headers / name).touch()
        (headers / "string.h").write_text(_STRING, encoding="utf-8")
    names = {name for defined in sources.values() for name in defined}
    renamed = [f"-D{name}={library}_{name}" for name in sorted(names)]
    options = ["-w", f"-D{ROUNDING}", f"-I{cmsis.includes}", f"-I{headers}", *renamed]
    objects: list[Path] = []
    for number, source in enumerate((layers, *sources)):
        objects.append(made := folder / f"cmsis_nn_{number}.o")
        try:
            compile_file(target, source, made, *options)
        except RuntimeError as error:
            reason = next((line for line in str(error).splitlines() if "error:" in line), str(error))
            raise UsageError(f"CMSIS-NN in '{cmsis.folder}' does not compile for {target.name}: {reason}") from error
    return objects


_STRING = """#include <stddef.h>
void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
"""
