"""A program for Ethos-U as arrays of C: the command stream, the weights, and where inputs and results are."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_PER_LINE = 20
_TEMPLATE = """/* {title}: made by fx_importer with Vela {version} for {accelerator}.
 *
 * With the Ethos-U driver, where `scratch` is {upper}_SCRATCH_SIZE bytes of memory, aligned to 16:
 *
 *   uint64_t base[] = {{(uintptr_t){name}_weights, (uintptr_t)scratch, (uintptr_t)fast_scratch}};
 *   size_t sizes[] = {{sizeof {name}_weights, {upper}_SCRATCH_SIZE, {upper}_FAST_SCRATCH_SIZE}};
 *   ethosu_invoke(driver, {name}_command_stream, sizeof {name}_command_stream, base, sizes, 3);
 *
 * An index of base is a region, as in the macros below; without fast scratch, its size is 0.
 * An integer q stands for SCALE * (q - ZERO_POINT).
 */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#if defined(__GNUC__)
#define {upper}_ALIGNED __attribute__((aligned(16)))
#else
#define {upper}_ALIGNED
#endif

{macros}

{arrays}

#endif /* {upper}_H */
"""


def read_raw(content: bytes) -> dict[str, Any]:
    """Return the entries of a file that Vela writes with ``--output-format raw``."""
    with np.load(io.BytesIO(content), allow_pickle=True) as file:  # Vela's own file, of this call
        return dict(file)


def c_arrays(
    raw: bytes,
    title: str,
    accelerator: str,
    version: str,
    scales: tuple[Sequence[tuple[float, int] | None], Sequence[tuple[float, int] | None]],
) -> str:
    """Return the header for ``raw``, Vela's file (``--output-format raw``).

    ``scales`` are scale and zero point of inputs and of results, None for a tensor without.
    """
    data = read_raw(raw)
    name = re.sub(r"\W", "_", title, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z_]", title) else f"model_{name}"
    upper = name.upper()
    regions = {"WEIGHTS": "weight", "SCRATCH": "scratch"}
    if int(data["scratch_fast_size"]):
        regions["FAST_SCRATCH"] = "scratch_fast"
    macros = [f"#define {upper}_{macro}_REGION {int(data[f'{key}_region'])}" for macro, key in regions.items()]
    macros += [
        f"#define {upper}_{key.upper()}_SIZE {int(data[f'{source}_size'])}"
        for key, source in (("scratch", "scratch"), ("fast_scratch", "scratch_fast"))
    ]
    for kind, values in zip(("input", "output"), scales, strict=True):
        for i, scale in enumerate(values):
            macros += ["", *_tensor(f"{upper}_{kind.upper()}_{i}", data, kind, i, scale)]
    return _TEMPLATE.format(
        title=title.replace("*/", "* /"),
        version=version,
        accelerator=accelerator,
        name=name,
        upper=upper,
        macros="\n".join(macros),
        arrays=byte_arrays(name, f"{upper}_ALIGNED", data),
    )


def byte_arrays(name: str, alignment: str, data: Mapping[str, Any]) -> str:
    """Return the command stream and the weights as arrays of C."""
    return "\n\n".join(
        f"static const uint8_t {name}_{what}[] {alignment} = {{\n{_bytes(data[key])}\n}};"
        for what, key in (("command_stream", "cmd_data"), ("weights", "weight_data"))
    )


def _tensor(prefix: str, data: dict[str, Any], kind: str, index: int, scale: tuple[float, int] | None) -> list[str]:
    shape = [int(size) for size in data[f"{kind}_shape"][index]]
    size = int(np.prod(shape)) * int(data[f"{kind}_elem_size"][index])
    lines = [
        f"/* shape {'x'.join(map(str, shape))}, {int(data[f'{kind}_elem_size'][index])} byte(s) an element */",
        f"#define {prefix}_REGION {int(data[f'{kind}_region'][index])}",
        f"#define {prefix}_OFFSET {int(data[f'{kind}_offset'][index])}",
        f"#define {prefix}_SIZE {size}",
    ]
    if scale is not None:
        lines += [f"#define {prefix}_SCALE {float(np.float32(scale[0]))!r}f", f"#define {prefix}_ZERO_POINT {scale[1]}"]
    return lines


def _bytes(value: Any) -> str:
    data = value.tobytes()  # numpy drops trailing zeros of bytes when it converts to a Python object
    data = data or bytes(1)  # C has no empty arrays
    rows = (data[start : start + _PER_LINE] for start in range(0, len(data), _PER_LINE))
    return "\n".join("    " + ", ".join(f"0x{byte:02x}" for byte in row) + "," for row in rows)
