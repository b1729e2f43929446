"""Compilation of a Triton kernel from its IR, in a process of its own: triton's passes end it for some IR."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any


def compile_in_child(source: str, output: str, backend: str, arch: str, options: str) -> None:
    """Compile the IR in the file ``source`` for a GPU; write what comes out to the directory ``output``.

    The files are ``kernel.json``, ``kernel.asm`` and ``kernel.bin``. ``options`` are `KernelVariant.options` as JSON.
    """
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    text, binary = {"cuda": ("ptx", "cubin"), "hip": ("amdgcn", "hsaco")}[backend]
    target = GPUTarget("cuda", int(arch), 32) if backend == "cuda" else GPUTarget("hip", arch, _lanes(arch))
    chosen = json.loads(options)
    try:
        compiler: Any = make_backend(target)
        parsed = compiler.parse_options(dict(chosen))
        stages: dict = {}
        compiler.add_stages(stages, parsed, Language.TRITON)
        context = ir.context()
        ir.load_dialects(context)
        compiler.load_dialects(context)
        module = ir.parse_mlir_module(source, context)
        module.context = context
        inlined = Path(output, "kernel.ttir")  # `triton.compile` leaves out this stage for IR that it is given
        inlined.write_text(str(stages["ttir"](module, {**parsed.__dict__, "target": target})))
        made = triton.compile(str(inlined), target=target, options=chosen)
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {error}")
    Path(output, "kernel.asm").write_text(made.asm[text])
    Path(output, "kernel.bin").write_bytes(made.asm[binary])
    settings = {name: getattr(made.metadata, name) for name in ("name", "shared", "num_warps", "num_ctas")}
    settings["scratch"] = getattr(made.metadata, "global_scratch_size", None) or 0
    Path(output, "kernel.json").write_text(json.dumps(settings))


def _lanes(arch: str) -> int:
    """Return the threads of a wave: 64 on GCN and CDNA, 32 on RDNA."""
    return 64 if arch.startswith("gfx9") else 32
