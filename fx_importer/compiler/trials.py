"""How changes of a failed lowering are tried: silently, and with the passes in another process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache

from fx_importer.compiler.advice import MAX_BYTES, Advisor, Change, bytes_of
from fx_importer.compiler.compilation import Call, Compilation
from fx_importer.frontend.torch_patches import GUARD_LOG, META_LOG, patched, warnings_filtered
from fx_importer.options import Options, PrintOptions, Quantized, RunOptions, Weights
from fx_importer.probing import Prober

_LOGS = {META_LOG: "torch._subclasses.fake_tensor", GUARD_LOG: "torch.fx.experimental.symbolic_shapes"}
"""Loggers to which torch writes a traceback for each operator or guard that it refuses."""


def advisor(
    calls: Mapping[str, Call], options: Options, lower_again: Callable[[Change, Options, Prober], None]
) -> Advisor:
    """Return what tries changes of ``options`` with which ``calls`` could not be lowered.

    ``lower_again`` lowers with a change and options, with the passes in the process of a prober: a crash is a failure.
    """
    prober = cache(lambda: Prober(Compilation.of(options).pipeline_of))

    @cache
    def weights() -> Weights:
        inline = options.importing.weights is Weights.INLINE and options.export.quantized is not Quantized.INTEGER
        # Inline ones would be sent to the other process by each trial.
        return Weights.EXTERNAL if inline and bytes_of(calls.values()) > MAX_BYTES else options.importing.weights

    def lowers(change: Change) -> bool:
        importing = replace(change.options.importing, weights=weights())
        running = RunOptions(cache=False)
        quiet = replace(change.options, importing=importing, printing=PrintOptions(), running=running)
        try:
            with warnings_filtered("ignore"), _without_logs():
                lower_again(change, quiet, prober())
        except Exception:  # of any kind, also of the model's own code
            return False
        return True

    return Advisor(calls, options, lowers, prober)


def _without_logs() -> AbstractContextManager[None]:
    """Return a context in which torch logs no refusals, which are part of a trial."""
    loggers = {patch: logging.getLogger(name) for patch, name in _LOGS.items()}
    return patched({patch.on(log): [*log.filters, lambda _: False] for patch, log in loggers.items()})
