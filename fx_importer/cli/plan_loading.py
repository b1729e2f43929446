"""Loading of a plan from a command-line argument."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fx_importer.cli.model_loading import named_attribute
from fx_importer.errors import UsageError

ACCEPTED = (
    "a JSON file, or package.module:name of a mapping from names to placements, or of a function that takes the "
    "DeviceMesh and returns the parallelized module and its inputs"
)


def plan_text(spec: str, mesh: str | None) -> str:
    """Return the text of the plan that ``spec`` names, for ``mesh``.

    Raises:
        UsageError: if ``spec`` names no plan, or ``mesh`` is None.
    """
    from fx_importer.distributed import Mesh, Plan, plan_on_mesh

    if mesh is None:
        raise UsageError("--plan names axes of a mesh: pass it too, --mesh dp=2,tp=4")
    axes = Mesh.get(mesh)
    if spec.endswith(".json"):
        try:
            return str(Plan.get(Path(spec).read_text(), axes))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the plan '{spec}' cannot be read: {error}") from error
    module, colon, name = spec.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"'{spec}' names no plan: PLAN is {ACCEPTED}")
    value: Any = named_attribute(module, name)
    makes: Any = value if callable(value) and not isinstance(value, Mapping) else None
    return str(Plan.get(value, axes) if makes is None else plan_on_mesh(makes, axes))
