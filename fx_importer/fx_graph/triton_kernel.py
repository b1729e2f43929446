"""Launch of a Triton kernel, as data and JSON, and the kernels of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fx_importer.fx_graph.function_signature import Fixed, name_from_json, names_from_json


@dataclass(frozen=True)
class KernelVariant:
    """A configuration of a kernel."""

    constants: Mapping[str, Fixed]
    """The values of ``constexpr`` parameters; those that are no Python literals as text."""
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    """Blocks of a cluster, on NVIDIA's sm_90 and newer."""
    maxnreg: int | None = None
    """The most registers of a thread, on NVIDIA; None for no limit."""

    @property
    def options(self) -> dict[str, int]:
        """The options of triton's compilers."""
        options = {name: getattr(self, name) for name in LAUNCH_OPTIONS}
        return {name: value for name, value in options.items() if value is not None}


LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options of launches and configurations that a `KernelVariant` has."""


@dataclass(frozen=True)
class TritonKernel:
    """A kernel, and how it is launched."""

    name: str
    """The name of its function in Triton's IR."""
    digest: str
    """Triton's hash of its source, and of the functions that it calls."""
    parameters: tuple[str, ...]
    """The parameters that are passed when it is launched, in the order of the kernel. Pointers are to be aligned to 16
    bytes."""
    writes: tuple[str, ...]
    """The tensors that it writes, whose new values are the results."""
    variants: tuple[KernelVariant, ...]
    """One, or the configurations of an autotuned kernel."""


def triton_kernel_from_json(record: Any) -> TritonKernel:
    """Return the kernel of a JSON object; raise ValueError, KeyError, TypeError or AttributeError if it is none."""
    return TritonKernel(
        name_from_json(record["name"]),
        name_from_json(record["digest"]),
        names_from_json(record["parameters"]),
        names_from_json(record["writes"]),
        tuple(map(_variant, record["variants"])),
    )


def _variant(record: Any) -> KernelVariant:
    options = {name: record[name] for name in LAUNCH_OPTIONS if record.get(name) is not None}
    if any(type(option) is not int or option < 1 for option in options.values()):
        raise ValueError(f"{record} is not a configuration of a kernel")
    return KernelVariant({name_from_json(name): value for name, value in record["constants"].items()}, **options)


@dataclass(frozen=True)
class KnownKernel:
    """A kernel of this process, a ``triton.runtime.JITFunction``, with the values of its ``constexpr`` parameters."""

    function: Any
    constants: Mapping[str, Any]


KNOWN_KERNELS: dict[str, KnownKernel] = {}
"""The kernels that programs of this process launch, in their first configuration, by the JSON of the operator stub."""
