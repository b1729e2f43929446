"""How changes of a failed lowering are tried: silently, and with the passes in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from fx_importer.compiler.advice import MAX_BYTES, Advisor, Change, bytes_of
from fx_importer.compiler.compilation import Call, Compilation
from fx_importer.frontend.torch_patches import warnings_filtered
from fx_importer.options import Options, PrintOptions, Quantized, RunOptions, Weights
from fx_importer.probing import Prober


def advisor(
    calls: Mapping[str, Call], options: Options, lower_again: Callable[[Change, Options, Prober], None]
) -> Advisor:
    """Return what tries changes of ``options`` with which ``calls`` could not be lowered.

    ``lower_again`` lowers with a change and options, with the passes in the process of a prober: a crash is a failure.
    """
    prober = cache(lambda: Prober(Compilation.of(options).pipeline_of))
    weights = options.importing.weights
    if weights is Weights.INLINE and options.export.quantized is not Quantized.INTEGER:
        # each trial would send them to the other process
        weights = Weights.EXTERNAL if bytes_of(calls.values()) > MAX_BYTES else weights

    def lowers(change: Change) -> bool:
        importing = replace(change.options.importing, weights=weights)
        running = RunOptions(cache=False)
        quiet = replace(change.options, importing=importing, printing=PrintOptions(), running=running)
        try:
            with warnings_filtered("ignore"):
                lower_again(change, quiet, prober())
        except Exception:  # of any kind, also of the model's own code
            return False
        return True

    return Advisor(calls, options, lowers, prober)
