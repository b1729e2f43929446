"""Models that IREE compiles for GPUs, from linalg, StableHLO and the torch dialect, and runs on Vulkan.

    python -m benchmarks.gpu_models --json gpus.json            # all models, a row each; resumes
    python -m benchmarks.gpu_models --json gpus.json --write    # the table of docs/gpus.md

A cell is the number of dispatches, and with CUDA whether ``ptxas`` takes all PTX. The torch dialect is IREE's own
input. On Vulkan the program of linalg is run, and compared with eager.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers as T

from benchmarks.rows import DOCS, Row, add_row, parser_of, read_rows, renew
from benchmarks.run_time_models import MODELS, Outputs
from fx_importer import FxImporterError, Lowered, lower
from fx_importer.engines import IreeBackend
from fx_importer.engines.iree.iree_programs import CompiledProgram

PAGE = DOCS / "gpus.md"
SECTION = "benchmarks/gpu_models.py --write"
TARGETS = {"CUDA": "cuda:sm_80", "ROCm": "rocm:gfx942", "Vulkan": "vulkan:vp_android_baseline_2022"}
OUTPUT_TYPES = ("linalg-on-tensors", "stablehlo", "torch")
RUN = "run"
"""What a row of running has for a target."""


def _mamba() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    config = T.MambaConfig(hidden_size=256, num_hidden_layers=1, vocab_size=1000, state_size=16)
    return Outputs(T.MambaModel(config), use_cache=False), (torch.randint(0, 1000, (1, 16)),)


def _whisper_encoder() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    config = T.WhisperConfig(
        d_model=256, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=512, decoder_attention_heads=4
    )
    return Outputs(T.WhisperModel(config).encoder), (torch.randn(1, 80, 3000),)


def _of(name: str) -> Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    return lambda: MODELS[name](1)


CASES = {name: _of(name) for name in MODELS if name != "addition"} | {
    "mamba_block": _mamba,
    "whisper_encoder": _whisper_encoder,
}


def measure(name: str, done: set[tuple[str, str]]) -> Iterator[Row]:
    """Compile the model ``name`` for each target from each output type, and run it; yield a row for each.

    What is ``done``, output types and targets, is left out.
    """
    torch.manual_seed(0)
    model, inputs = CASES[name]()
    model = model.eval().requires_grad_(False)
    for output_type in OUTPUT_TYPES:
        row: Row = {"model": name, "output_type": output_type}
        wanted = [each for each in TARGETS if (output_type, each) not in done]
        try:
            lowered = lower(model, *inputs, output_type=output_type, weights="external") if wanted else None
        except FxImporterError as error:
            yield from (row | {"target": each, "error": _reason(error)} for each in wanted)
            continue
        if lowered is not None:
            yield from (row | {"target": each} | _cell(lowered, TARGETS[each]) for each in wanted)
        if output_type == OUTPUT_TYPES[0] and (output_type, RUN) not in done:
            yield row | {"target": RUN} | _run(lower(model, *inputs, output_type=output_type), inputs)


def _cell(lowered: Lowered, target: str) -> Row:
    try:
        compiled = lowered.compile(target)
    except FxImporterError as error:
        return {"error": _reason(error)}
    found: Row = {"dispatches": compiled.dispatches, "matrix": compiled.matrix_instructions}
    return found | ({"ptxas": _assembles(compiled)} if target.startswith("cuda") else {})


def _reason(error: FxImporterError) -> str:
    return " ".join(str(error).split())[:400]


def _assembles(compiled: CompiledProgram) -> bool:
    texts = [data for name, data in compiled.kernels.items() if name.endswith(".ptx")]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        for text in texts:
            source.write_bytes(text)
            if subprocess.run([_ptxas(), "-arch=sm_80", source, "-o", cubin], check=False).returncode:
                return False
    return bool(texts)


def _ptxas() -> str:
    """Return NVIDIA's assembler: that on the path, or the one in the triton package."""
    if found := shutil.which("ptxas"):
        return found
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas")


def _run(lowered: Lowered, inputs: tuple[torch.Tensor, ...]) -> Row:
    try:
        verdict = lowered.verify(*inputs, backends=[IreeBackend(target=TARGETS["Vulkan"])])
    except FxImporterError as error:
        return {"error": _reason(error)}
    (check,) = verdict.checks
    found = [each.comparison for each in check.outputs if each.comparison is not None]
    worst = max(found, key=lambda each: each.max_absolute, default=None)
    row: Row = {"passed": bool(verdict), "reason": check.reason}
    return row | ({"worst": worst.max_absolute, "magnitude": worst.magnitude} if worst else {"worst": None})


def table(rows: list[Row]) -> str:
    """Return the table of docs/gpus.md."""
    found = {(row["model"], row["output_type"], row["target"]): row for row in rows}
    lines = [
        "",
        "| dispatches from linalg / StableHLO / torch | " + " | ".join(TARGETS) + " | Vulkan beside eager |",
        "|---|" + "---|" * len(TARGETS) + "---|",
    ]
    for name in dict.fromkeys(row["model"] for row in rows):
        cells = [" / ".join(_text(found.get((name, kind, label))) for kind in OUTPUT_TYPES) for label in TARGETS]
        ran: dict[str, Any] = found.get((name, OUTPUT_TYPES[0], RUN), {})
        worst = ran.get("worst")
        beside = "-" if not ran else "fails" if worst is None else f"{worst:.1e} of {ran['magnitude']:.2g}"
        beside += "" if ran.get("passed", True) else ", wrong"
        lines.append(f"| {name} | {' | '.join(cells)} | {beside} |")
    return "\n".join([*lines, "", ""])


def _text(row: Row | None) -> str:
    if row is None:
        return "-"
    return "fails" if "error" in row or row.get("ptxas") is False else str(row["dispatches"])


def main() -> None:
    """Run the models that the file does not have, or write the page."""
    parser = parser_of(__doc__, PAGE)
    parser.add_argument("--only", nargs="*", choices=CASES, default=[*CASES])
    given = parser.parse_args()
    rows = read_rows(given.json)
    if given.write:
        renew(PAGE, SECTION, table(rows))
        return
    for name in given.only:
        done = {(row["output_type"], row["target"]) for row in rows if row["model"] == name}
        for row in measure(name, done) if len(done) < len(OUTPUT_TYPES) * len(TARGETS) + 1 else ():
            print(row, flush=True)
            add_row(given.json, row)


if __name__ == "__main__":
    main()
