"""``fx-importer verify``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fx_importer.cli.commands.import_model import lower_model
from fx_importer.cli.escaped_console import escaped_console
from fx_importer.cli.following import Following
from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.diagnostics.progress import reporting_progress
from fx_importer.engines import engine_named
from fx_importer.options import Options
from fx_importer.verification.verdict import CAPTURE, WIDTH, Status, Verdict


def verify_model(
    model: str,
    options: Options,
    backends: Sequence[str] | None,
    rtol: float | None,
    atol: float | None,
    bisect: bool,
    following: Following = Following(),  # noqa: B008 - it is frozen
    trust: bool = False,
    json: Path | None = None,
    device: str = "cpu",
) -> bool:
    """Lower the model that ``model`` names, run it on ``backends`` with its own example inputs, and print the result.

    With ``bisect``, also print the pass after which numbers differ, and the first operation that differs, for each
    backend with a mismatch. ``following`` says what to print and record of the lowering; ``json`` gets the verdict.

    Returns:
        Whether the verification passed.

    Raises:
        UsageError: if ``model`` does not name a model or has no example inputs, or a backend is unknown.
        FxImporterError: if the model cannot be lowered.
    """
    for name in backends or ():
        engine_named(name)  # raises before the lowering
    options = following.prepared(options)
    with json_output(json) as write, following.run(model, options.output_type.value) as followed:
        with reporting_progress(True):
            lowered = followed.lowered = lower_model(model, options, trust)
            verdict = followed.verdict = lowered.verify(
                backends=backends or None, rtol=rtol, atol=atol, bisect=bisect, device=device
            )
        _show(verdict)
        for check in verdict.checks:
            if bisect and check.status is Status.MISMATCH and check.backend != CAPTURE:
                with reporting_progress(True):
                    divergence = lowered.bisect(backend=check.backend, rtol=rtol, atol=atol, device=device)
                followed.divergences += [divergence] if divergence else []
                echo(f"\n{divergence}")
        write(
            document(
                {"passed": verdict.passed, "verdict": verdict, "divergences": list(map(str, followed.divergences))}
            )
        )
    return verdict.passed


def _show(verdict: Verdict) -> None:
    console = escaped_console(width=WIDTH)
    if console.is_terminal:
        console.print(verdict.table())
        echo("\n".join(verdict.remarks()))
    else:
        echo(verdict)
