"""Results of earlier compilations, which run without the compiler: it is imported when they need it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.export import ExportedProgram

from fx_importer.diagnostics.trace import Trace
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import ir
from fx_importer.options import DecompositionOptions, Options, Quantized
from fx_importer.results.changed_weights import lowered_weights
from fx_importer.results.lowered import Lowered
from fx_importer.results.lowered_record import Recompile, weights_read

if TYPE_CHECKING:
    from fx_importer.importing import FxImporter


def restored(
    exported: Mapping[str, ExportedProgram],
    module: ir.Module,
    manifest: Manifest,
    options: Options,
    importer: FxImporter | None,
    trace: Trace,
) -> Lowered:
    """Return the result of an earlier compilation of ``exported``, which are decomposed when they are needed.

    ``importer`` has the hooks of that compilation, if any.
    """

    def in_integers() -> Mapping[str, ExportedProgram]:
        from fx_importer.compiler.compilation import Compilation
        from fx_importer.compiler.driver import checked_programs

        return checked_programs(exported, Compilation.of(options))

    def canonical() -> Mapping[str, ExportedProgram]:
        from fx_importer.compiler.compilation import Compilation
        from fx_importer.compiler.driver import canonical_programs

        return canonical_programs(computed, Compilation.of(options))

    integers = LazyPrograms(exported, in_integers) if options.export.quantized is Quantized.INTEGER else {}
    computed = integers or exported
    programs = LazyPrograms(exported, canonical)
    return Lowered(
        *(programs, exported, module, manifest, trace, options, recompiler(options, importer)),
        integers=integers,
        weights=lowered_weights(exported, weights_read(trace), manifest),
    )


class LazyPrograms(Mapping[str, ExportedProgram]):
    """Mapping with known names whose programs are created on first access."""

    def __init__(self, names: Iterable[str], make: Callable[[], Mapping[str, ExportedProgram]]):
        self._names = tuple(names)
        self._made = functools.cache(make)

    def __getitem__(self, name: str) -> ExportedProgram:
        if name not in self._names:
            raise KeyError(name)
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def recompiler(options: Options, importer: FxImporter | None) -> Recompile:
    """Return a function that lowers another model with the options and hooks of a compilation."""

    def again(
        f: Any, args: Sequence[Any], decompositions: DecompositionOptions | None, /, trace: Trace | None = None
    ) -> Lowered:
        from fx_importer.compiler.compile_programs import recompile
        from fx_importer.importing import FxImporter

        return recompile(options, importer or FxImporter(), f, args, decompositions, trace)

    return again
