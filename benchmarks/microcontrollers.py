"""Run int8 networks on emulated Cortex-M processors, and renew the table of docs/measurements/native.md.

python -m benchmarks.microcontrollers  # needs arm-none-eabi-gcc and qemu-system-arm
"""

from __future__ import annotations

import math
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch_mlir import ir

from benchmarks.house import commit
from benchmarks.rows import DOCS, Row, renew
from fx_importer.results.lowered import Lowered
from testing import cortex_m
from testing.microcontroller_nets import NETS, lower_to_int8

PAGE = DOCS / "measurements" / "native.md"
_CONSTANTS = ("tosa.const", "tosa.const_shape")


def measure(net: str) -> Row:
    """Compile a network as C source, run it on each processor, and compare with the JIT, bit by bit."""
    lowered, x = lower_to_int8(net)
    expected = lowered.run(x)
    row: Row = {"model": net, "live": live_bytes(lowered)}
    with tempfile.TemporaryDirectory() as folder:
        built = lowered.build(Path(folder) / "net", kind="c")
        runs = {cpu: cortex_m.run_on(cpu, built.library, Path(folder), [x]) for cpu in cortex_m.BOARDS}
    for cpu, run in runs.items():
        if run.status or not torch.equal(run.outputs[0], expected):
            raise RuntimeError(f"{net} on {cpu}: status {run.status}, or results that are not those of the JIT")
        row[cpu] = run.instructions
    last = [*runs.values()][-1]
    code, constants = (sum(size for name, size in last.sections.items() if name == of) for of in (".text", ".rodata"))
    return row | {"code": code, "constants": constants, "ram": last.ram}


def live_bytes(lowered: Lowered) -> int:
    """Return the largest sum of sizes of values in use at once, without inputs, results and constants, in bytes."""
    (function,) = lowered.module.body.operations
    operations = list(function.regions[0].blocks[0].operations)
    number = {op.operation: i for i, op in enumerate(operations)}
    returned = list(operations[-1].operands)
    at = [0] * len(operations)
    for op in operations:
        if op.operation.name in _CONSTANTS:
            continue
        for value in op.results:
            uses = [number[use.owner.operation] for use in value.uses]
            if uses and value not in returned:
                for i in range(number[op.operation], max(uses) + 1):
                    at[i] += _bytes(ir.RankedTensorType(value.type))
    return max(at)


def _bytes(type_: ir.RankedTensorType) -> int:
    return math.prod(type_.shape) * -(-type_.element_type.width // 8)


def table(rows: list[Row]) -> str:
    """Return the section of the page."""
    lines = [
        f"Written by `python -m benchmarks.microcontrollers` at {commit('HEAD')}: networks of",
        "`testing/microcontroller_nets.py`, random weights in int8, C source compiled by `arm-none-eabi-gcc` at `-O2`.",
        "Instructions of one call are those that QEMU counts. Results are those of the JIT, bit by bit.",
        "",
        "| model | instructions, M4 | instructions, M55 | flash: code | flash: constants | RAM, bytes | live tensors |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [row["model"], *(f"{row[cpu] / 1e6:.2f} M" for cpu in cortex_m.BOARDS)]
        cells += [f"{row[key] / 1e3:.1f} KB" for key in ("code", "constants")]
        cells += [f"{row[key]:,}" for key in ("ram", "live")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all networks, and write the page."""
    if missing := cortex_m.missing_tools():
        sys.exit(f"not installed: {', '.join(missing)}")
    warnings.simplefilter("ignore")
    text = table([measure(net) for net in NETS if net != "linear"])  # that one is for tests
    print(text)
    renew(PAGE, "microcontrollers", text)


if __name__ == "__main__":
    main()
