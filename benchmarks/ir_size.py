"""Count a module's operations beside `torch_mlir.fx`'s for the same exported program: the small models of the zoo.

python -m benchmarks.ir_size                       # a table in Markdown
python -m benchmarks.ir_size --models lstm,unet --by-name
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir import fx as peer

from fx_importer import lower
from testing.zoo import ZOO

OUTPUT_TYPES = ("linalg-on-tensors", "tosa", "stablehlo")


def operations(module: Any) -> Counter[str]:
    """Return how many operations of each name ``module`` has, of either package's bindings."""
    found: Counter[str] = Counter()
    pending = [module.operation]
    while pending:
        op = pending.pop()
        found[op.name] += 1
        pending.extend(each.operation for region in op.regions for block in region for each in block.operations)
    return found


def both(program: torch.export.ExportedProgram, output_type: str) -> tuple[Counter[str], Counter[str] | None]:
    """Return our operations and the peer's; None where it fails."""
    ours = operations(lower(program, output_type=output_type).module)
    try:
        return ours, operations(peer.export_and_import(program, output_type=output_type))
    except Exception:
        return ours, None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 if any module of ours is larger than the peer's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names, separated by commas; the small ones by default")
    parser.add_argument("--by-name", action="store_true", help="print what there is more of, on our side")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    names = options.models.split(",") if options.models else [name for name, entry in ZOO.items() if entry.small]
    larger = False
    print(f"| model | {' | '.join(OUTPUT_TYPES)} |\n|---|{'---|' * len(OUTPUT_TYPES)}")
    for name in names:
        model, args, kwargs = ZOO[name].build()
        program = torch.export.export(model, args, kwargs)
        cells: list[str] = []
        for output_type in OUTPUT_TYPES:
            ours, theirs = both(program, output_type)
            cells.append(f"{ours.total()} / {theirs.total() if theirs else 'fails'}")
            if theirs is not None and ours.total() > theirs.total():
                larger = True
                cells[-1] += " larger"
                if options.by_name:
                    print(name, output_type, {key: (n, theirs[key]) for key, n in ours.items() if n > theirs[key]})
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return int(larger)


if __name__ == "__main__":
    sys.exit(main())
