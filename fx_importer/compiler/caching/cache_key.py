"""The key of a lowering: all that its outcome depends on. What is not understood here is not kept.

What is equal has to be equal in the key; what differs may be anything but equal. So keys are of texts that tell every
value from every other: ``repr`` of what has a faithful one.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch.export import ExportedProgram

from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.compiler.caching.option_digest import options_text
from fx_importer.compiler.caching.program_digest import Digest
from fx_importer.compiler.caching.versions import settings, versions
from fx_importer.options import Options


def key_of(programs: Mapping[str, ExportedProgram], options: Options) -> tuple[str, ElidedWeights]:
    """Return the key of lowering ``programs`` so, and the weights that count by their types only.

    Raises:
        NotCached: for what the key cannot hold.
    """
    digest = Digest()
    digest.add(versions(), settings(), options_text(options))
    for name, program in programs.items():
        digest.add("program", name)
        digest.program(program)
    digest.environments()
    return digest.hexdigest(), digest.elided
