"""The order of a compilation is one list, and every FX pass is in it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import torch

import fx_importer.fx_passes
from fx_importer import lower
from fx_importer.compiler.compilation import Compilation
from fx_importer.compiler.driver import FX_STAGES, stages_of
from fx_importer.diagnostics.observers import Observer, observing
from fx_importer.fx_passes.fx_pass import FxPass
from fx_importer.options import Options
from fx_importer.output_types import OutputType

LISTED = [fx_pass for stage in FX_STAGES for fx_pass in stage.passes]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(fx_importer.fx_passes.__path__, "fx_importer.fx_passes.")
    if not module.ispkg
]


def test_passes_of_a_file_are_in_the_list():
    defined = (value for name in MODULES for value in vars(importlib.import_module(name)).values())
    passes = [value for value in defined if isinstance(value, FxPass)]
    assert [each.name for each in passes if not any(each is listed for listed in LISTED)] == []


def test_modules_without_a_pass_help_others():
    """A file of `fx_passes` that defines no pass is imported by one that does, or runs or checks passes."""
    folder = Path(fx_importer.fx_passes.__path__[0])
    sources = {path: path.read_text() for path in folder.rglob("*.py")}
    for name in MODULES:
        path = folder.joinpath(*name.split(".")[2:]).with_suffix(".py")
        passes = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, FxPass)]
        package, _, stem = name.rpartition(".")
        imports = re.compile(rf"from {name} import|from {package} import .*\b{stem}\b")
        imported = any(imports.search(source) for other, source in sources.items() if other != path)
        assert passes or imported or path.stem in ("runner", "normal_form"), name


def test_names_are_unique():
    names = [fx_pass.name for fx_pass in LISTED]
    assert len(set(names)) == len(names)


def test_stages_are_named_after_packages():
    for stage in FX_STAGES:
        importlib.import_module(f"fx_importer.{stage.name}")


def test_passes_are_values():
    with pytest.raises(FrozenInstanceError):
        LISTED[0].name = "other"  # type: ignore[misc]


class Passes(Observer):
    def __init__(self):
        self.names = []

    def after_fx_pass(self, name, programs):
        assert list(programs) == ["main"]
        self.names.append(name)


@pytest.mark.parametrize("output_type", [OutputType.RAW, OutputType.TOSA])
def test_compilation_runs_the_list(output_type: OutputType):
    compilation = Compilation.of(Options(output_type))
    passes = Passes()
    with observing(passes):
        lowered = lower(torch.nn.Linear(2, 2), torch.ones(1, 2), output_type=output_type)
    stages = stages_of(compilation)
    assert [record.name for record in lowered.trace.stages] == [stage.name for stage in stages]
    assert passes.names == [each.name for stage in stages for each in stage.passes if isinstance(each, FxPass)]
    assert ("fold-constants" in passes.names) == (output_type is OutputType.TOSA)
