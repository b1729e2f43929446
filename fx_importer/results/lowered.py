"""Result of a lowering, with methods to run, verify, bisect and save the module."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import torch
from torch.export import ExportedProgram

from fx_importer.calls.backend import Backend
from fx_importer.calls.caller import Caller
from fx_importer.engines.compiled_program import CompiledProgram
from fx_importer.engines.engine_table import ahead_of_time
from fx_importer.engines.iree.iree_parameters import SCOPE
from fx_importer.engines.xla.portable_artifact import Weights
from fx_importer.errors import UsageError
from fx_importer.manifest import OperatorStub
from fx_importer.options import DecompositionOptions
from fx_importer.process.once import once
from fx_importer.results.lowered_on_mesh import LoweredOnMesh
from fx_importer.results.lowered_text import html_of, line_of, summary_text
from fx_importer.results.run import caller_of, require_programs
from fx_importer.results.save import (
    DEFAULT_VERSION,
    iree_source_of,
    parameters_of,
    save_bundle_of,
    save_lowered,
    save_portable_artifact,
)

if TYPE_CHECKING:  # not imported by processes that only run a module
    from fx_importer.native.build import Built
    from fx_importer.results.report import Report
    from fx_importer.verification import Divergence, Inputs, Verdict


@dataclass(frozen=True)
class Lowered(LoweredOnMesh):
    """One or several lowered programs in one module, and the record of how they were lowered."""

    def lower_again(self, f: Any, args: Sequence[Any], decompositions: DecompositionOptions | None = None) -> Lowered:
        """Lower another model with the same options. Deprecated: `recompile` does that."""
        warnings.warn("Lowered.lower_again is deprecated: call Lowered.recompile", DeprecationWarning, stacklevel=2)
        return self.recompile(f, args, decompositions)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Raise `UsageError`, for pickle and copy: a module belongs to a context of MLIR in this process."""
        raise UsageError(
            "a lowering is neither pickled nor copied: lowered.save('model.mlirbc') writes it, and "
            "fx_importer.load('model.mlirbc') reads it, in another process too"
        )

    def __repr__(self) -> str:
        return line_of(self)

    def __str__(self) -> str:
        """Return a summary that fits a screen; ``str(lowered.module)`` is the IR."""
        return summary_text(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def program(self) -> ExportedProgram:
        """The program, decomposed and canonical; the first one if there are several."""
        require_programs(self)
        return next(iter(self.programs.values()))

    @property
    def exported_program(self) -> ExportedProgram:
        """The program as it was exported; the first one if there are several. ``exported`` has all."""
        require_programs(self)
        return next(iter(self.exported.values()))

    @property
    def operator_stubs(self) -> Mapping[str, OperatorStub]:
        """Stubs of unsupported operators, which PyTorch runs, by function name, for ``unsupported="outline"``."""
        return self.manifest.operator_stubs

    @property
    def stubs(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that PyTorch runs for operators that are external calls, by name."""
        if not self.options.lowering.lowerings:
            return {}
        from fx_importer.lowerings import layers, stubs_of

        return stubs_of(layers(self.options.lowering.lowerings))

    def save(
        self,
        path: str | os.PathLike[str],
        weights: str | os.PathLike[str] | None = None,
        *,
        module_paths: bool = False,
        locations: bool = False,
    ) -> None:
        """Write the module: text for ``.mlir``, bytecode for ``.mlirbc``, `save_artifact` for ``.stablehlo``.

        The manifest is in the file, and `fx_importer.load` reads both; for a module without its weights, it is written
        next to it: ``model.manifest.json``. An artifact contains external weights, and no manifest.

        Args:
            weights: for such a module, the file, or transformers' directory, that has the weights, which the manifest
                then records for each; or, if it does not exist, the .safetensors or .irpa file to write.
            module_paths: whether locations become ``"encoder/layer/0/tosa.matmul"``, by which Model Explorer groups.
            locations: whether a ``.mlir`` file has locations; bytecode always has them.

        Raises `UsageError` if a file cannot be written, or weights do not match the module; no new files are left then.
        """
        save_lowered(self, path, weights, module_paths, locations)

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        verdict: Verdict | None = None,
        divergence: Divergence | None = None,
    ) -> Report:
        """Link source lines with their IR after each stage: a page, which a notebook shows in the cell.

        Args:
            path: a ``.html`` file to write the page to, or a ``.json`` file, for the data of the page.
            verdict, divergence: of `verify` and `bisect`, to show too.

        The programs are lowered again. Raises `UsageError` if the file cannot be written.
        """
        from fx_importer.results.report import report_of_lowered

        return report_of_lowered(self, path, verdict, divergence)

    def iree_source(self, scope: str = SCOPE) -> str:
        """Return the module as text for ``iree-compile``, in which weights are parameters of ``scope``.

        They are named as in the state dict. IREE's runtime reads them from a file that `save` has written, for example
        ``--parameters=model=model.safetensors``. The compiled module does not contain them.

        Raises `UsageError` unless the weights are external.
        """
        return iree_source_of(self, scope)

    def compile(self, target: str = "cpu", kind: str = "vmfb") -> CompiledProgram:
        """Compile the module for IREE's runtime, ahead of time and without a device.

        Args:
            target: ``"cuda:sm_90"``, ``"rocm:gfx942"``, ``"vulkan:rdna3"``, ``"metal"``, or a CPU: ``"x86-64-v3"``,
                ``"aarch64"``, ``"riscv64"``, ``"riscv32"``, ``"cortex-m4"``, ... ``"cpu"`` is the processor of this
                machine: the code may not run on another one.
            kind: ``"vmfb"``, which IREE's runtime loads; ``"static"``, the same with the kernels of a CPU in an
                object file to link; or ``"c"``, with a C module instead of bytecode, for microcontrollers too.

        Raises:
            UsageError: for another target or kind.
            NotInstalledError: without the extra ``iree``.
            StageFailed: if IREE cannot compile the module for it.
        """
        return ahead_of_time().compile(self.module, target, parameters_of(self.manifest), kind)

    def build(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        kind: str = "shared",
        weights: str = "embedded",
        threads: str | None = None,
        blas: str | None = None,
        cmsis_nn: str | os.PathLike[str] | None = None,
    ) -> Built:
        """Build the module as native code with a C header: no runtime, no Python, and no allocation in a call.

        Args:
            path: where the files go, and the name in C that begins all names: ``"out/mlp"`` writes ``out/mlp.h`` and
                ``out/libmlp.so``.
            target: ``"x86-64-v2"``, ``"x86-64-v3"``, ``"x86-64-v4"``, ``"aarch64"``, ``"riscv64"``, ``"cortex-m4"``,
                ``"wasm32"`` and others, ``"host"`` for all instructions of this machine, or a triple and a CPU, as
                ``"aarch64-linux-musl:cortex_a72"``; by default the baseline of this machine's architecture.
            kind: ``"shared"``, ``"static"`` or ``"object"``; or ``"c"``, source in C99 for any processor, with weights
                as arrays, which needs no toolchain here.
            weights: ``"embedded"``; ``"file"``, which writes ``mlp.safetensors`` for ``mlp_map_weights``; or
                ``"pointer"``, where the program passes the address of the block.
            threads: ``"openmp"`` for loops on the threads of an OpenMP library with GCC's interface (libgomp, LLVM's);
                by default a call runs on one thread.
            blas: the library whose ``cblas_sgemm`` and ``cblas_dgemm`` compute large matmuls: ``"openblas"``, a name
                that a linker takes after ``-l``, or the path of a shared library; by default loops compute them.
            cmsis_nn: a folder with the source of CMSIS-NN, whose functions compute convolutions and linear layers of
                int8 where results are the same bits; by default loops compute them.

        Raises:
            UsageError: for a target or kind that does not exist, operators that PyTorch runs, sizes that depend on
                values, or a path that cannot be written; nothing is left then.
            NotInstalledError: without the extra ``native``.
        """
        from fx_importer.native.build import build_native

        return build_native(self, path, target, kind, weights, threads, blas, cmsis_nn=cmsis_nn)

    def save_artifact(
        self, path: str | os.PathLike[str], version: str = DEFAULT_VERSION, weights: Weights = "inline"
    ) -> None:
        """Write StableHLO as a portable artifact, readable by other releases of StableHLO and by XLA.

        Args:
            path: the file; its usual suffix is ``.stablehlo``.
            version: the oldest release of StableHLO that reads it: ``"1.0.0"``; or ``"current"``, ``"week-4"``,
                ``"week-12"``, ``"minimum"``, StableHLO's names of supported releases.
            weights: ``"inline"``; or ``"arguments"``: each is a trailing argument of the functions that read it, and
                the argument's attribute ``fx_importer.constant`` is its name in the manifest.

        Raises:
            UsageError: if the module is not StableHLO, the version does not exist, or the file cannot be written.
        """
        save_portable_artifact(self, path, version, weights)

    def save_bundle(self, folder: str | os.PathLike[str], *, platform: str = "cpu", weights: bool = True) -> None:
        """Write a directory that runs where there are jax and numpy alone, of other versions than here.

        It has ``model.stablehlo``, its manifest, ``model.safetensors``, the state, and ``stablehlo_loader.py``, whose
        ``load("model.stablehlo", device="cuda")`` compiles the functions.

        Args:
            folder: the directory, which is made.
            platform: jax's name of the platform that runs it: ``"cpu"``, ``"cuda"`` or ``"rocm"``.
            weights: whether to write weights and state; without them, ``load`` takes them as an argument.

        Raises `UsageError` unless the module is StableHLO with external weights, or if a file cannot be written.
        """
        save_bundle_of(self, folder, platform, weights)

    def caller(
        self,
        state: Mapping[str, torch.Tensor] | None = None,
        backend: str | Backend | None = None,
        device: str = "cpu",
    ) -> Caller:
        """Return the module's functions, ready to run on ``backend``, with their own state.

        Args:
            state: the initial state; by default the exported programs'. May contain weights that functions take.
            backend: a name in `BACKENDS`, ``"eager"`` for the programs themselves, or a custom backend; by default the
                output type's: the JIT, StableHLO's interpreter, TOSA's reference model. With stubs, the JIT. On another
                device than ``"cpu"``, the first that runs there.
            device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"rocm"``. The functions take and return PyTorch's tensors
                there, without copies by the host, and keep their state there.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: if the backend cannot run the module, a part of the state is missing, or the device is not there
                or has too little memory left.
        """
        return caller_of(self, state, backend, device)

    @once
    def _caller(self) -> Caller:
        return self.caller()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module on the output type's backend, with the model's arguments and results.

        The first call compiles. State that the model mutates is kept between calls. `caller` returns the functions
        by name, with fresh state, for any backend.

        Raises:
            NotInstalledError: naming the extra that brings the backend.
            UsageError: for inputs that the program was not exported for, or an output type that has no backend.
        """
        return self._caller(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module, as `run` does."""
        return self.run(*args, **kwargs)

    def verify(
        self,
        *args: Any,
        inputs: Sequence[Inputs] = (),
        backends: Sequence[str | Backend] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        bisect: bool = False,
        device: str = "cpu",
        **kwargs: Any,
    ) -> Verdict:
        """Call the model in PyTorch and run the module on backends, and compare all results.

        Outputs, new state, gradients and mutated inputs are compared with `compare`. State is reset for each backend,
        and kept from one input set to the next. The model is the one that was lowered: a copy of it is called, which
        shares the weights. ``verdict.reference`` says where the exported program takes its place.

        Args:
            *args: the model's inputs; by default the example inputs of the programs.
            inputs: several input sets instead, or inputs of named functions.
            backends: names or custom backends; by default all installed ones that run the output type, whose own
                backend must be installed.
            rtol: overrides the dtype's tolerance in ``|a - e| <= rtol * |e| + atol``.
            atol: likewise. The default is relative to the largest magnitude of the output: see `Tolerance`.
            isolate: whether to run code that may crash in another process. It takes some seconds to start and is
                shared by all input sets and backends. Custom backends run in this process.
            bisect: on a mismatch, find the stage and the pass after which the numbers differ: an FX pass, or one of the
                output type's pipeline, of the user or of the engine. The programs are lowered again, and run once for
                each pass, in this process. ``verdict.wrong_passes`` has the result.
            device: where the module runs, as for `caller`: by default on the first backend that has it, in this
                process. PyTorch runs the model on the CPU.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: for inputs that the programs were not exported for, an unknown backend, an output type
                without a backend, or a device that is not there.
        """
        from fx_importer.results.verify import inputs_given, verify_lowered
        from fx_importer.verification import Tolerance

        call = inputs_given(args, kwargs)
        return verify_lowered(self, call, inputs, backends, Tolerance(rtol, atol), isolate, bisect, device)

    def bisect(
        self,
        *args: Any,
        inputs: Inputs | None = None,
        backend: str | Backend | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        isolate: bool = True,
        device: str = "cpu",
        **kwargs: Any,
    ) -> Divergence | None:
        """Find the first operation of the exported program whose value differs on ``backend``, or None.

        The program is lowered again with intermediate outputs; operations that differ are then lowered as single-op
        programs. A script that reproduces the operation without the model is written to a new directory. The state is
        the exported program's.

        Args:
            *args: the model's inputs; by default the example inputs of the program.
            inputs: the inputs of a named function, instead.
            backend: a name or a custom backend; by default the output type's. ``"eager"`` finds wrong
                decompositions.
            rtol: as for `verify`.
            atol: as for `verify`.
            isolate: as for `verify`.
            device: as for `verify`.
            **kwargs: the model's keyword arguments.

        Raises:
            UsageError: if the program does not run on the backend; and as `verify` does.
        """
        from fx_importer.results.verify import bisect_lowered, inputs_given
        from fx_importer.verification import Tolerance

        call = inputs_given(args, kwargs)
        return bisect_lowered(self, call, inputs, backend, Tolerance(rtol, atol), isolate, device)
