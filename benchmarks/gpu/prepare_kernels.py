"""Lower programs with the Triton kernels of `benchmarks.gpu.kernels`, and compile them, on a machine without a GPU.

    python -m benchmarks.gpu.prepare_kernels FOLDER        # then on the device: python FOLDER/run_kernels.py OUT.json

``FOLDER`` gets a directory for each kernel, with its binary and ``kernels.json``, and the scripts of the device.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.gpu.kernels import LAUNCH, arguments
from fx_importer import compile_kernels, lower
from fx_importer.engines.triton.triton_gpu import save_kernels

HERE = Path(__file__).parent


def prepare(folder: Path, name: str, target: str, small: bool = False) -> None:
    """Write the compiled kernel of the program ``name`` to ``folder``."""
    lowered = lower(LAUNCH[name], *arguments(small=small)[name], output_type="stablehlo", strict=True)
    folder.mkdir(parents=True, exist_ok=True)
    save_kernels(compile_kernels(lowered, target=target), target, folder)


def main() -> None:
    """Prepare all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=list(LAUNCH), choices=list(LAUNCH))
    parser.add_argument("--target", default="cuda:sm_90")
    given = parser.parse_args()
    for name in given.only:
        prepare(given.folder / name, name, given.target)
    for script in ("kernels.py", "run_kernels.py"):
        shutil.copy(HERE / script, given.folder)


if __name__ == "__main__":
    main()
