"""Cache key of a lowering: everything that its result depends on. Other lowerings are not cached.

Inputs that may give different results must have different keys. Keys are therefore made of texts that distinguish all
values: ``repr`` of types with a faithful one.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch.export import ExportedProgram

from fx_importer.caching.versions import settings, versions
from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.compiler.caching.option_digest import options_text
from fx_importer.compiler.caching.program_digest import Digest
from fx_importer.options import Options


def key_of(programs: Mapping[str, ExportedProgram], options: Options) -> tuple[str, ElidedWeights]:
    """Return the key of this lowering of ``programs``, and the weights whose types alone are in the key.

    Raises:
        NotCached: if the key cannot represent an input.
    """
    digest = Digest()
    digest.add(versions(), settings(), options_text(options))
    for name, program in programs.items():
        digest.add("program", name)
        digest.program(program)
    digest.environments()
    return digest.hexdigest(), digest.elided
