"""The forms a program can be lowered to, and the one parser of their names."""

from __future__ import annotations

from enum import Enum

from fx_importer.errors import UsageError


class OutputType(Enum):
    """What ``export_and_import`` returns. The value is the canonical spelling."""

    RAW = "raw"
    """The torch dialect as imported, before any pass."""
    TORCH = "torch"
    """The torch dialect in backend form: inlined, canonical, decomposed where no backend takes an op whole."""
    LINALG_ON_TENSORS = "linalg-on-tensors"
    """``linalg``, ``tensor``, ``arith``, ``math``, ``scf`` on builtin tensors."""
    TOSA = "tosa"
    """The TOSA dialect."""
    STABLEHLO = "stablehlo"
    """The StableHLO dialect."""

    @classmethod
    def get(cls, spec: str | Enum) -> OutputType:
        """Return the output type that ``spec`` names.

        ``spec`` is a member, a member of an enumeration with the same names (torch-mlir's), or any spelling of a name:
        case, ``-``, ``_`` and spaces do not matter, and ``linalg`` is short for ``linalg-on-tensors``.

        Raises:
            UsageError: (a ``ValueError``) if nothing is named so; the message lists what is accepted.
        """
        if isinstance(spec, cls):
            return spec
        name = spec.name if isinstance(spec, Enum) else spec
        if isinstance(name, str) and (found := _BY_KEY.get(_key(name))):
            return found
        accepted = ", ".join(f"'{member.value}'" for member in cls)
        raise UsageError(f"unknown output type {spec!r}: accepted are {accepted} (in any case, with '-' or '_')")


def _key(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch not in "-_ ")


_BY_KEY = {_key(member.value): member for member in OutputType} | {"linalg": OutputType.LINALG_ON_TENSORS}
