"""Compare the IR of a commit and of the working tree: small programs and the small models of the zoo, all output types.

    python -m testing.compare_ir main              # exit code 1 if any text differs
    python -m testing.compare_ir v0.3.0 --only conv --out out/ir

Both sides lower the same programs, in a process each; only the package differs. Weights of the zoo's models are elided.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

ROOT = Path(__file__).parents[1]
OUTPUT_TYPES = ("raw", "torch", "linalg-on-tensors", "tosa", "stablehlo")

Built = tuple[Callable[..., Any], tuple[Any, ...], Any]
"""A function or model, its inputs, and its dynamic shapes or None."""

BATCH: Any = ({0: Dim("b")},)


def programs() -> Mapping[str, Built]:
    """Return small programs: a few operators each, so that every family of rules and every pass is entered."""
    torch.manual_seed(0)
    r = torch.randn
    indices = torch.tensor([0, 2, 4])
    return {
        "mlp": (nn.Sequential(nn.Linear(4, 8), nn.ReLU6(), nn.Linear(8, 3)).eval(), (r(2, 4),), None),
        "mlp_dynamic": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval(), (r(2, 4),), BATCH),
        "conv": (
            nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.ConvTranspose2d(4, 2, 2),
            ).eval(),
            (r(2, 3, 8, 8),),
            None,
        ),
        "conv_dynamic": (
            nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval(),
            (r(2, 3, 9, 9),),
            BATCH,
        ),
        "attention": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            (r(1, 2, 4, 8), r(1, 2, 4, 8), r(1, 2, 4, 8)),
            None,
        ),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (r(2, 5, 8),), None),
        "lstm": (nn.LSTM(4, 5, batch_first=True).eval(), (r(2, 3, 4),), None),
        "gru": (nn.GRU(4, 5, 2, bidirectional=True).eval(), (r(3, 2, 4),), None),
        "index": (lambda x, i: x[i] + x.index_select(0, i).sort(1)[0], (r(5, 4), indices), None),
        "index_put": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (r(5, 4), indices, r(3, 4)), None),
        "topk": (lambda x: torch.where(x > 0, x, torch.zeros_like(x)).cumsum(1).topk(2)[0], (r(3, 6),), None),
        "scatter": (
            lambda x, i, v: x.scatter_add(1, i, v).scatter_reduce(1, i, v, "amax"),
            (r(3, 4), torch.tensor([[0, 1], [1, 2], [3, 0]]), r(3, 2)),
            None,
        ),
        "fft": (lambda x: torch.fft.rfft(x).abs(), (r(2, 8),), None),
        "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j), (r(2, 3, 2),), None),
        "uint8": (
            lambda x: (x.to(torch.int32) // 3 + x.float().sum().int()).to(torch.uint8),
            (torch.arange(12, dtype=torch.uint8).reshape(3, 4),),
            None,
        ),
        "integers": (
            lambda x: (x % 3).prod(1) + torch.bitwise_and(x, 7).sum(),
            (torch.arange(12).reshape(3, 4),),
            None,
        ),
        "half": (lambda x, y: torch.softmax(x @ y, -1), (r(2, 4).half(), r(4, 3).half()), None),
        "bfloat16": (nn.LayerNorm(8).bfloat16().eval(), (r(2, 8).bfloat16(),), None),
        "resize": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (r(1, 2, 4, 4),), None),
        "grid_sample": (
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            (r(1, 2, 4, 4), torch.rand(1, 3, 3, 2)),
            None,
        ),
        "in_place": (_in_place, (r(3, 4),), None),
        "cond": (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), (r(3),), None),
        "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (r(2, 3, 4), r(2, 5, 4)), None),
        "inverse": (lambda a: torch.linalg.inv(a @ a.T + torch.eye(3)), (r(3, 3),), None),
        "special": (lambda x: torch.special.erfinv(torch.tanh(x)) + torch.lgamma(x.abs() + 1), (r(4),), None),
        "embedding_bag": (nn.EmbeddingBag(10, 4).eval(), (torch.tensor([[1, 2], [3, 4]]),), None),
        "group_norm": (nn.GroupNorm(2, 4).eval(), (r(2, 4, 3, 3),), None),
        "pad": (lambda x: F.pad(x, (1, -1, 2, 0), mode="constant", value=3.0), (r(3, 4),), None),
        "view_dynamic": (lambda x: x.view(x.shape[0], -1).flip(0).roll(1, 1), (r(3, 2, 4),), BATCH),
        "cat_dynamic": (lambda x: torch.cat([x, x.relu()], 0).mean(0), (r(3, 4),), BATCH),
        "log_softmax": (lambda x: F.log_softmax(x, 1).argmax(1), (r(3, 4),), None),
    }


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0].add_(1)
    return y.mul_(2)


def dump(folder: Path, only: str) -> int:
    """Write the IR of each program and output type to ``folder``, or the error; return the number of files."""
    from fx_importer import lower
    from testing.zoo import ZOO

    warnings.simplefilter("ignore")
    count = 0
    for name, (function, inputs, dynamic_shapes) in programs().items():
        for output_type in OUTPUT_TYPES if only in name else ():
            torch.manual_seed(0)
            text = _text(
                lambda o=output_type, f=function, x=inputs, d=dynamic_shapes: str(
                    lower(f, *x, output_type=o, dynamic_shapes=d).module
                )
            )
            (folder / f"{name}.{output_type}.mlir").write_text(text)
            count += 1
    for model in ZOO.values():
        if not model.small or only not in model.name:
            continue
        torch.manual_seed(0)
        module, args, kwargs = model.build()
        program = torch.export.export(module, args, kwargs)
        for output_type in OUTPUT_TYPES:
            text = _text(
                lambda o=output_type, p=program: lower(p, output_type=o).module.operation.get_asm(
                    large_elements_limit=16, use_local_scope=True
                )
            )
            (folder / f"zoo.{model.name}.{output_type}.mlir").write_text(text)
            count += 1
    return count


def _text(lowering: Callable[[], str]) -> str:
    try:
        return lowering()
    except Exception as error:
        return f"error {type(error).__name__}: {str(error)[:300]}"


def extract(commit: str, folder: Path) -> None:
    """Write the package of ``commit`` to ``folder``, beside this tree's `testing`."""
    archive = folder / "package.tar"
    subprocess.run(["git", "archive", "-o", str(archive), commit, "fx_importer"], cwd=ROOT, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()
    (folder / "testing").symlink_to(ROOT / "testing")


def run_dump(tree: Path, folder: Path, only: str) -> None:
    """Dump the IR of the package in ``tree``, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "testing.compare_ir", "--dump", str(folder), "--only", only]
    subprocess.run(command, cwd=tree, env=environment, check=True)


def differences(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that differs, with a diff of its text."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    for name in names:
        texts = [path.read_text() if path.exists() else "" for path in (before / name, after / name)]
        if texts[0] != texts[1]:
            lines = [text.splitlines() for text in texts]
            yield name, "\n".join(difflib.unified_diff(lines[0], lines[1], "before", "after", lineterm="", n=1))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", default="HEAD", help="the commit to compare the working tree with")
    parser.add_argument("--only", default="", help="only programs and models whose name contains this text")
    parser.add_argument("--out", type=Path, help="folder that keeps the IR, in before/ and after/")
    parser.add_argument("--lines", type=int, default=20, help="lines of each diff to print")
    parser.add_argument("--dump", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.dump:
        print(f"{dump(chosen.dump, chosen.only)} modules written")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        tree, out = Path(scratch) / "tree", chosen.out or Path(scratch)
        tree.mkdir()
        extract(chosen.base, tree)
        run_dump(tree, out / "before", chosen.only)
        run_dump(ROOT, out / "after", chosen.only)
        count = 0
        for name, diff in differences(out / "before", out / "after"):
            count += 1
            print(name, *diff.splitlines()[: chosen.lines], sep="\n  ")
        total = len(list((out / "after").iterdir()))
    print(f"{total - count} of {total} modules are identical to those of {chosen.base}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
