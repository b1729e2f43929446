"""Measure the cost of a Llama of 70 billion parameters on the meta device: by depth, with outlined layers and in line.

    python -m benchmarks.deep_models --json deep.json           # each row in a process of its own
    python -m benchmarks.deep_models --json deep.json --write   # renew docs/measurements/deep_models.md from the file

The model is built on the meta device, and lowered with external weights.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew

PAGE = DOCS / "measurements" / "deep_models.md"
LAYERS = 80
CASES = (
    *((LAYERS, output_type, True) for output_type in ("torch", "linalg-on-tensors", "stablehlo", "tosa")),
    *((layers, "linalg-on-tensors", outlined) for layers in (10, 20, 40) for outlined in (True, False)),
    (LAYERS, "torch", False),
    (LAYERS, "linalg-on-tensors", False),
    (LAYERS, "stablehlo", False),
)
"""Layers, output type, and whether the layers are functions."""


def measure(layers: int, output_type: str, outlined: bool) -> Row:
    """Return the CPU seconds and the memory of one case, in this process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from fx_importer import lower

    config = LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=layers,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        use_cache=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval().bfloat16()
        tokens = torch.zeros((1, 128), dtype=torch.int64)
    before = time.process_time()
    program = torch.export.export(model, (tokens,))
    exported = time.process_time()
    lowered = lower(program, output_type=output_type, weights="external", outline_layers=outlined)
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "llama.mlirbc")
        lowered.save(path)
        size = path.stat().st_size
    return {
        "layers": layers,
        "output_type": output_type,
        "outlined": outlined,
        "parameters": sum(each.numel() for each in model.parameters()),
        "export": exported - before,
        "lower": done - exported,
        "peak": peak,
        "bytes": size,
    }


COLUMNS: dict[str, Callable[[Row], object]] = {
    "layers": lambda row: row["layers"],
    "parameters": lambda row: f"{row['parameters'] / 1e9:.1f} billion",
    "output type": lambda row: row["output_type"],
    "layers are": lambda row: "functions" if row["outlined"] else "in line",
    "export, CPU s": lambda row: f"{row['export']:.1f}",
    "lowering, CPU s": lambda row: f"{row['lower']:.2f}",
    "peak of the process, MB": lambda row: f"{row['peak']:.0f}",
    "bytecode, kB": lambda row: f"{row['bytes'] / 1000:.0f}",
}


def table(rows: Sequence[Row]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([str(of(row)) for of in COLUMNS.values()] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cases that the file lacks, or write the page."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--case", type=int, help="measure this one here, and print it")
    options = parser.parse_args(arguments)
    if options.case is not None:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(*CASES[options.case])))
        return 0
    known = {(row["layers"], row["output_type"], row["outlined"]): row for row in read_rows(options.json)}
    if options.write:
        renew(PAGE, "deep models", table([known[case] for case in CASES if case in known]))
        return 0
    for number, case in enumerate(CASES):
        if case not in known:
            command = [sys.executable, "-m", "benchmarks.deep_models", "--case", str(number)]
            stdout = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            known[case] = json.loads(stdout.splitlines()[-1])
            add_row(options.json, known[case])
    print(table([known[case] for case in CASES]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
