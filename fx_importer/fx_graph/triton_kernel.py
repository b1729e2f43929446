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
    num_warps: int
    num_stages: int


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


def triton_kernel_from_json(found: Any) -> TritonKernel:
    """Return the kernel of a JSON object; raise ValueError, KeyError, TypeError or AttributeError if it is none."""
    return TritonKernel(
        name_from_json(found["name"]),
        name_from_json(found["digest"]),
        names_from_json(found["parameters"]),
        names_from_json(found["writes"]),
        tuple(map(_variant, found["variants"])),
    )


def _variant(found: Any) -> KernelVariant:
    numbers = found["num_warps"], found["num_stages"]
    if any(type(each) is not int or each < 1 for each in numbers):
        raise ValueError(f"{found} is no configuration of a kernel")
    return KernelVariant({name_from_json(name): value for name, value in found["constants"].items()}, *numbers)


@dataclass(frozen=True)
class KnownKernel:
    """A kernel of this process, a ``triton.runtime.JITFunction``, with the values of its ``constexpr`` parameters."""

    function: Any
    constants: Mapping[str, Any]


KNOWN_KERNELS: dict[str, KnownKernel] = {}
"""The kernels that programs of this process launch, in their first configuration, by the JSON of the operator stub."""
