"""``fx-importer pipelines``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fx_importer.cli.json_output import document, json_output
from fx_importer.cli.terminal import echo
from fx_importer.options import LoweringOptions
from fx_importer.output_types import OutputType
from fx_importer.pipelines import PIPELINES, Pipeline, Stage
from fx_importer.targets import target_for


def list_pipelines(output_type: OutputType | None, json: Path | None = None) -> None:
    """Print every named pipeline, or the one that ``output_type`` runs after the import, and write it to ``json``."""
    chosen: Iterable[Pipeline] = PIPELINES.values()
    if output_type is not None:
        chosen = [target_for(output_type).pipeline(LoweringOptions())]
    chosen = list(chosen)
    with json_output(json) as write:
        echo("\n\n".join(_described(pipeline) for pipeline in chosen))
        write(
            document(
                [{"name": pipeline.name, "stages": [_data(stage) for stage in pipeline.stages]} for pipeline in chosen]
            )
        )


def _data(stage: Stage) -> dict[str, str]:
    return {"name": stage.name, "description": stage.description, "passes": str(stage)}


def _described(pipeline: Pipeline) -> str:
    lines = [pipeline.name]
    for stage in pipeline.stages:
        lines += [f"  {stage.name}: {stage.description}", f"    {stage}"]
    return "\n".join(lines if pipeline.stages else [*lines, "  No stage: the module is left as it was imported."])
