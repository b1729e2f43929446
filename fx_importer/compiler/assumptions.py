"""The warning about what captured programs assume."""

from __future__ import annotations

import warnings
from collections.abc import Collection

from fx_importer.errors import AssumptionWarning
from fx_importer.manifest import Manifest
from fx_importer.options import Capture, ExportOptions


def warn_of_assumptions(manifest: Manifest, captured: Collection[str], options: ExportOptions) -> None:
    """Warn of the assumptions of the functions ``captured``, one line each, unless ``options`` ask for them.

    Programs that were captured before have the assumptions of their owner.
    """
    if options.capture is not Capture.AUTO:
        return
    several = len(manifest.functions) > 1
    lines = [
        f"  {f'{name}: ' if several else ''}{assumption}"
        for name, function in manifest.functions.items()
        if name in captured
        for assumption in function.assumptions
    ]
    if lines:
        count = "1 assumption" if len(lines) == 1 else f"{len(lines)} assumptions"
        warnings.warn(
            f"torch.export refuses the model; it was captured under {count} on the values of its inputs, which each "
            "call checks:\n" + "\n".join([*lines, 'capture="assume" accepts this, capture="export" is an error']),
            AssumptionWarning,
            stacklevel=4,
        )
