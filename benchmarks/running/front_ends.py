"""The native front ends of engines, for the same models with the same weights, and `torch.compile`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fx_importer.benchmarking import Candidate, Example
from fx_importer.engines.iree.iree_compiler import KEEP_FLOAT64
from fx_importer.engines.iree.iree_targets import HOST, iree_target
from fx_importer.process.one_shot import run_command
from fx_importer.process.optional_packages import require
from fx_importer.process.scratch import Scratch


def _turbine(example: Example) -> Callable[..., Any]:
    """Compile what iree-turbine imports, with the flags of our backend."""
    runtime, tools, aot = (
        importlib.import_module(name) for name in ("iree.runtime", "iree.compiler.tools.binaries", "iree.turbine.aot")
    )
    scratch = Scratch()
    source, compiled = scratch.path / "module.mlir", scratch.path / "module.vmfb"
    aot.export(example.model, args=tuple(example.args), kwargs=dict(example.kwargs)).save_mlir(str(source))
    flags = ["--iree-input-type=torch", *iree_target(HOST).flags, KEEP_FLOAT64]
    run_command("iree-compile", [tools.find_tool("iree-compile"), source, *flags, "-o", compiled])
    config = runtime.Config("local-sync" if torch.get_num_threads() == 1 else "local-task")
    module = runtime.load_vm_modules(runtime.VmModule.mmap(config.vm_instance, str(compiled)), config=config)[-1]

    def call(*args: Any) -> Any:
        found = module["main"](*(runtime.asdevicearray(config.device, each.numpy()) for each in args))
        _ = scratch  # the compiled code is mapped
        return [torch.from_numpy(each.to_host()) for each in (found if isinstance(found, tuple) else (found,))]

    return call


def _jax(example: Example) -> Callable[..., Any]:
    """Compile the program in jax of the same model."""
    import jax

    from benchmarks.running import jax_models

    held = jax_models.weights_of(example.model)
    compiled = jax.jit(jax_models.program_of(example.model))

    def call(*args: torch.Tensor) -> Any:
        return [jax_models.to_torch(each) for each in compiled(held, *map(jax_models.to_jax, args))]

    return call


FRONT_ENDS = {
    each.name: each
    for each in (
        Candidate("iree-turbine", _turbine, partial(require, "iree-turbine", "bench", "iree.turbine", "iree.runtime")),
        Candidate("jax", _jax, partial(require, "jax", "xla", "jax")),
    )
}


def _torch_compile(example: Example) -> Callable[..., Any]:
    from fx_importer.dynamo import backend  # only here: the other engines load without TorchDynamo

    return torch.compile(example.function, backend=backend)


def _always_there() -> None:
    pass


TORCH_COMPILE = Candidate("torch.compile", _torch_compile, _always_there)
"""``torch.compile(backend="fx_importer")``."""
