"""`keep=` and `extra=` of random programs, for operators that the exported program has."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from typing import Any

from torch.export import ExportedProgram, default_decompositions

from fx_importer import OutputType
from fx_importer.options import DecompositionOptions
from fx_importer.targets import target_for


def overrides(program: ExportedProgram, output_type: OutputType, choice: int) -> DecompositionOptions:
    """Return options that keep operators which are decomposed otherwise, or decompose some by PyTorch's own rules.

    They are always the same for the same ``choice``; 0 chooses none.
    """
    if not choice:
        return DecompositionOptions()
    rng = random.Random(choice)
    present: Mapping[str, object] = {str(node.target): node.target for node in program.graph.nodes}
    table, of_torch = target_for(output_type).decompositions, _of_torch()
    if rng.random() < 0.6:
        decomposed = [name for name in sorted(present) if present[name] in table and name.startswith("aten.")]
        return DecompositionOptions(keep=tuple(rng.sample(decomposed, min(len(decomposed), rng.choice((1, 1, 2))))))
    return DecompositionOptions(extra={name: of_torch[name] for name in present.values() if name in of_torch})


@functools.cache
def _of_torch() -> Mapping[object, Callable[..., Any]]:
    return dict(default_decompositions())
