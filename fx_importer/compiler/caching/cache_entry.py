"""Cache entry of a lowering."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
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

_READS = b"weights read: "
"""Beginning of an entry that names the weights whose elements the result depends on."""


@dataclass(frozen=True)
class CacheEntry:
    """Entry for the result of one lowering."""

    store: Store
    key: str
    elided: ElidedWeights

    def read(self, module: ir.Module) -> tuple[Manifest, Sequence[str]] | None:
        """Fill the empty ``module`` with the cached one, and return its manifest and the weights that were read.

        Return None if the entry is missing.
        """
        data, names = self.store.get(self.key), list[str]()
        if data is not None and data.startswith(_READS):
            names = data.removeprefix(_READS).decode().split("\n")
            data = self.store.get(key) if (key := self._key_of_elements(names)) else None
        if data is None:
            return None
        load_dialects(module.context)
        try:
            header, _, bytecode = data.partition(b"\n")
            manifest = Manifest.from_json(json.loads(header))
            parsed = ir.Module.parse(bytecode, module.context)
            link_elided(parsed, self.elided.weights)
        except Exception:  # an unusable entry counts as missing, for any reason
            return None
        replace_contents(module, parsed.operation)
        return manifest, names

    def give_weights(self, module: ir.Module) -> None:
        link_elided(module, self.elided.weights)

    def __str__(self) -> str:
        return f"'{self.store.directory}', {self.key}"

    def _key_of_elements(self, names: Sequence[str]) -> str | None:
        """Return the key of an entry that depends on the elements of the weights ``names``; None if one is unknown."""
        weights = {weight.name: weight for weight in self.elided.weights}
        digest = hashlib.sha256(repr((self.key, names)).encode())
        for name in names:
            if name not in weights:
                return None
            digest.update(weights[name].elements().view("u1").data)
        return digest.hexdigest()

    def write(self, module: ir.Module, manifest: Manifest, reads: Collection[str] = ()) -> str:
        """Store ``module``, whose weights are still elided but those in ``reads``. Return a remark on the outcome.

        The entry of `key` then has the names of these weights, and the module the key of their elements.
        """
        key = self.key
        names = sorted({weight.name for weight in self.elided.weights} & {*reads})
        if names:
            key = self._key_of_elements(names) or key
        try:
            text = manifest.to_json()
            if Manifest.from_json(text) != manifest:
                return "not kept: JSON cannot hold its manifest"
            bytecode = bytecode_of(module.operation)
        except Exception as error:  # failing to store the result is not an error of the lowering
            return f"not kept: {type(error).__name__}: {error}"
        header = json.dumps(text).encode()
        stored = self.store.put(key, header + b"\n" + bytecode)
        if stored and names:
            stored = self.store.put(self.key, _READS + "\n".join(names).encode())
        if not stored:
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
