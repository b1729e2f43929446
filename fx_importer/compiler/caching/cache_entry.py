"""Cache entry of a lowering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.export import ExportedProgram

from fx_importer.caching.disk_store import Store, users_store
from fx_importer.caching.uncacheable import NotCached
from fx_importer.compiler.caching.cache_key import key_of
from fx_importer.compiler.caching.cached_weights import ElidedWeights
from fx_importer.importing import FxImporter
from fx_importer.manifest import Manifest
from fx_importer.mlir.bindings import bytecode_of, ir, load_dialects
from fx_importer.mlir.elided_weights import link_elided
from fx_importer.mlir.module_contents import replace_contents
from fx_importer.options import Options


@dataclass(frozen=True)
class CacheEntry:
    """Entry for the result of one lowering."""

    store: Store
    key: str
    elided: ElidedWeights

    def read(self, module: ir.Module) -> Manifest | None:
        """Fill the empty ``module`` with the cached one, and return its manifest, or None if the entry is missing."""
        data = self.store.get(self.key)
        if data is None:
            return None
        load_dialects(module.context)
        try:
            header, _, bytecode = data.partition(b"\n")
            manifest = Manifest.from_json(json.loads(header))
            found = ir.Module.parse(bytecode, module.context)
            link_elided(found, self.elided.weights)
        except Exception:  # an unusable entry counts as missing, for any reason
            return None
        replace_contents(module, found.operation)
        return manifest

    def give_weights(self, module: ir.Module) -> None:
        link_elided(module, self.elided.weights)

    def __str__(self) -> str:
        return f"'{self.store.directory}', {self.key}"

    def write(self, module: ir.Module, manifest: Manifest) -> str:
        """Store ``module``, whose weights are still elided. Return a remark on the outcome."""
        try:
            text = manifest.to_json()
            if Manifest.from_json(text) != manifest:
                return "not kept: JSON cannot hold its manifest"
            bytecode = bytecode_of(module.operation)
        except Exception as error:  # failing to store the result is not an error of the lowering
            return f"not kept: {type(error).__name__}: {error}"
        header = json.dumps(text).encode()
        if not self.store.put(self.key, header + b"\n" + bytecode):
            return f"not kept: '{self.store.directory}' cannot be written, or it is too large for there"
        return f"kept in {self}"


def place_of(
    programs: Mapping[str, ExportedProgram], importer: FxImporter, options: Options, remark: Callable[[str], None]
) -> CacheEntry | None:
    """Return the entry of lowering ``programs`` with ``importer``, or None after calling ``remark`` with the reason.

    Raises:
        UsageError: if an environment variable of the cache is invalid.
    """
    store = users_store()
    try:
        if not importer.is_plain:
            raise NotCached("the importer has hooks or handlers, or its module holds something")
        return CacheEntry(store, *key_of(programs, options))
    except NotCached as reason:
        remark(f"not cached: {reason}")
    except Exception as error:  # such as from another torch; the lowering continues without the cache
        remark(f"not cached: {type(error).__name__}: {error}")
    return None
