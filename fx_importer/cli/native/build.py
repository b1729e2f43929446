"""``fx-importer build``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fx_importer.cli.commands.import_model import lower_model
from fx_importer.cli.following import Following
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.errors import UsageError
from fx_importer.native.build import SOURCE, check_build
from fx_importer.native.cmsis_nn import find_cmsis_nn
from fx_importer.native.compilers import find_compiler
from fx_importer.options import Options


def build_model(
    model: str,
    output: Path,
    options: Options,
    *,
    target: str | None,
    kind: str,
    weights: str,
    threads: str | None = None,
    blas: str | None = None,
    following: Following = Following(),  # noqa: B008 - it is frozen
    trust: bool = False,
    json: Path | None = None,
    cmsis_nn: Path | None = None,
) -> None:
    """Lower the model that ``model`` names, and build it as native code: see `Lowered.build`.

    Raises:
        UsageError: for a target, kind or path that cannot be built, before the model is loaded.
        NotInstalledError: without the extra ``native``.
        FxImporterError: if the model cannot be lowered; nothing is written in that case.
    """
    with _options_in_errors():
        _, chosen, _ = check_build(output, target, kind, weights, threads, blas)
        if cmsis_nn is not None:
            find_cmsis_nn(cmsis_nn)
    if kind != SOURCE:
        find_compiler().check(chosen)
    with json_output(json) as write:
        with following.run(model, "build") as followed, reporting_progress(True):
            lowered = followed.lowered = lower_model(model, following.prepared(options), trust)
            with _options_in_errors():
                built = lowered.build(
                    output,
                    target=target,
                    kind=kind,
                    weights=weights,
                    threads=threads,
                    blas=blas,
                    cmsis_nn=cmsis_nn,
                )
        for path in built.files:
            echo(f"{path}: {path.stat().st_size:,} bytes")
        library = built.library
        arenas = {entry.c_name: None if entry.dimensions else entry.arena for entry in library.entries}
        for name, nbytes in arenas.items():
            size = "depends on sizes" if nbytes is None else f"{nbytes:,} bytes"
            echo(f"{library.name}_{name}: {library.target.name}, arena {size}, weights {library.weights_bytes:,} bytes")
        if blas is not None:
            routines = (
                ", ".join(library.blas.routines.values()) if library.blas else "nothing: no matmul is large enough"
            )
            echo(f"{library.name} calls of {blas}: {routines}")
        layers = library.cmsis_nn.layers if library.cmsis_nn else ()
        if library.cmsis_nn is not None:
            functions = ", ".join(library.cmsis_nn.functions)
            calls = f"{len(layers)} layers, by {functions}" if layers else "nothing: no layer has its semantics"
            echo(f"{library.name} calls of CMSIS-NN: {calls}")
        write(
            document(
                {
                    "files": {str(path): path.stat().st_size for path in built.files},
                    "target": library.target.name,
                    "kind": kind,
                    "weights_bytes": library.weights_bytes,
                    "state_bytes": library.state_bytes,
                    "arena_bytes": arenas,
                    "blas": [*library.blas.routines.values()] if library.blas else [],
                    "cmsis_nn_layers": len(layers),
                }
            )
        )


@contextmanager
def _options_in_errors() -> Iterator[None]:
    """Spell keywords of `Lowered.build` in errors as options: ``weights='file'`` becomes ``--weights-in file``.

    ``--weights`` is an option of `lower`.
    """
    try:
        yield
    except UsageError as error:
        message = _KEYWORD.sub(lambda found: f"--{_NAMES.get(found[1], found[1])} {found[2]}", str(error))
        raise UsageError(message) from error


_NAMES = {"weights": "weights-in", "cmsis_nn": "cmsis-nn"}
_KEYWORD = re.compile(r"\b(weights|kind|target|threads|blas|cmsis_nn)='([^']*)'")
