"""The cache key of a lowering: what it depends on, and which lowerings have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from fx_importer import OutputType
from fx_importer.caching import versions
from fx_importer.caching.uncacheable import NotCached
from fx_importer.compiler.caching import cache_key, program_digest
from fx_importer.compiler.caching.cache_key import key_of
from fx_importer.frontend.export import export_program
from fx_importer.options import (
    Contract,
    DecompositionOptions,
    ExportOptions,
    ImportOptions,
    LoweringOptions,
    Mutation,
    Options,
    PrintOptions,
    RunOptions,
    TosaTarget,
    Unsupported,
    Weights,
)

X = torch.ones(2, 3)


class Model(nn.Module):
    """Every property that can differ between two models; all of it on one line of ``forward``."""

    def __init__(
        self, number: Any = 2.0, op: Callable[..., Any] = torch.relu, value: Any = None, wrap: Any = None, **held: Any
    ):
        super().__init__()
        self.number, self.op, self.wrap = number, op, wrap or (lambda x: x)
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.rand(3, 3))
        self.register_buffer("offset", torch.arange(3.0) if value is None else value)
        for name, tensor in held.items():
            setattr(self, name, tensor)

    def forward(self, x):
        held = [each for name, each in self.named_parameters() if name != "weight"]
        return self.wrap(self.op(x @ self.weight + self.offset) * self.number + sum(each.sum() for each in held))


def program(model: nn.Module | None = None, *args: Any, shapes: Any = None) -> ExportedProgram:
    return export_program(model or Model(), args or (X,), {}, ExportOptions(shapes))


def text(exported: ExportedProgram | None = None, options: Options | None = None) -> str:
    return key_of({"main": exported or program()}, options or Options())[0]


def parameter(data: Any, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    return nn.Parameter(torch.tensor(data, dtype=dtype), requires_grad=False)


class Tied(nn.Module):
    def __init__(self, *, tied: bool):
        super().__init__()
        self.a = nn.Parameter(torch.rand(3))
        self.b = self.a if tied else nn.Parameter(self.a.detach().clone())

    def forward(self, x):
        return x * self.a + self.b


def elsewhere(x):
    return torch.relu(x)


PROGRAMS: Mapping[str, tuple[Callable[[], ExportedProgram], Callable[[], ExportedProgram]]] = {
    "operator": (program, lambda: program(Model(op=torch.sigmoid))),
    "number": (program, lambda: program(Model(3.0))),
    "sign of zero": (lambda: program(Model(0.0)), lambda: program(Model(-0.0))),
    "type of number": (lambda: program(Model(1)), lambda: program(Model(1.0))),
    "input's shape": (program, lambda: program(None, torch.ones(4, 3))),
    "input's dtype": (lambda: program(nn.ReLU(), X), lambda: program(nn.ReLU(), X.double())),
    "dynamic size": (program, lambda: program(shapes={"x": {0: Dim("n")}})),
    "range of size": (
        lambda: program(shapes={"x": {0: Dim("n", max=8)}}),
        lambda: program(shapes={"x": {0: Dim("n", max=9)}}),
    ),
    "buffer's elements": (program, lambda: program(Model(value=torch.arange(3.0) + 1))),
    "buffer's dtype": (program, lambda: program(Model(value=torch.arange(3)))),
    "parameter's shape": (
        lambda: program(Model(more=parameter([1.0, 2.0]))),
        lambda: program(Model(more=parameter([1.0, 2.0, 3.0]))),
    ),
    "parameter's dtype": (
        lambda: program(Model(more=parameter([1.0, 2.0]))),
        lambda: program(Model(more=parameter([1.0, 2.0], torch.float64))),
    ),
    "parameter's name": (
        lambda: program(Model(more=parameter([1.0, 2.0]))),
        lambda: program(Model(less=parameter([1.0, 2.0]))),
    ),
    "integer parameter": (
        lambda: program(Model(more=parameter([1, 2], torch.int64))),
        lambda: program(Model(more=parameter([1, 3], torch.int64))),
    ),
    "parameter of one value": (
        lambda: program(Model(more=parameter([1.0, 1.0]))),
        lambda: program(Model(more=parameter([2.0, 2.0]))),
    ),
    "parameter of one value or several": (
        lambda: program(Model(more=parameter([1.0, 1.0]))),
        lambda: program(Model(more=parameter([1.0, 2.0]))),
    ),
    "tied parameters": (lambda: program(Tied(tied=True), X), lambda: program(Tied(tied=False), X)),
    "nesting of results": (
        lambda: program(Model(wrap=lambda x: [x])),
        lambda: program(Model(wrap=lambda x: {"y": x})),
    ),
    "source line": (program, lambda: program(Model(op=elsewhere))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_different_programs_have_different_keys(name: str):
    one, other = PROGRAMS[name]
    assert text(one()) == text(one())
    assert text(one()) != text(other())


OPTIONS = {
    "output_type": Options(OutputType.TOSA),
    "func_name": Options(importing=ImportOptions(func_name="other")),
    "func_visibility": Options(importing=ImportOptions(func_visibility="private")),
    "mutation": Options(importing=ImportOptions(mutation=Mutation.FUNCTIONAL)),
    "symbolic_shapes": Options(importing=ImportOptions(symbolic_shapes=True)),
    "runtime_asserts": Options(importing=ImportOptions(runtime_asserts=True)),
    "keep": Options(decompositions=DecompositionOptions(keep=("aten.relu",))),
    "backend_legal_ops": Options(lowering=LoweringOptions(("aten.relu",))),
    "allow_non_finites": Options(lowering=LoweringOptions(allow_non_finites=False)),
    "narrow_integers": Options(lowering=LoweringOptions(narrow_integers=True)),
    "narrow_floats": Options(lowering=LoweringOptions(narrow_floats=True)),
    "tosa_target": Options(lowering=LoweringOptions(tosa_target=TosaTarget.get("level=none"))),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_different_options_have_different_keys(name: str):
    assert text(options=OPTIONS[name]) != text()


def test_key_depends_on_the_function_name():
    exported = program()
    assert key_of({"a": exported}, Options())[0] != key_of({"b": exported}, Options())[0]


@pytest.mark.parametrize("name", ["versions", "settings"])
def test_key_depends_on_versions_and_settings(monkeypatch: pytest.MonkeyPatch, name: str):
    before = text()
    monkeypatch.setattr(cache_key, name, lambda: "others")
    assert text() != before


@pytest.mark.parametrize(
    "setting",
    [lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_float32_matmul_precision("medium")],
    ids=["default dtype", "precision of products"],
)
def test_key_depends_on_torch_settings(setting: Callable[[], None]):
    before, exported = versions.settings(), (torch.get_default_dtype(), torch.get_float32_matmul_precision())
    try:
        setting()
        assert versions.settings() != before
    finally:
        torch.set_default_dtype(exported[0])
        torch.set_float32_matmul_precision(exported[1])


def test_sources_changed_during_the_process(monkeypatch: pytest.MonkeyPatch):
    versions.versions.cache_clear()
    monkeypatch.setattr("fx_importer.process.load_time.AT", 0.0)
    with pytest.raises(NotCached, match="was changed while this process ran"):
        text()
    monkeypatch.undo()
    assert text()


def test_key_is_independent_of_float_parameter_values():
    other = Model()
    with torch.no_grad():
        other.weight.add_(1)
    assert text(program(other)) == text()


def test_key_is_independent_of_runtime_options():
    assert text(options=Options(running=RunOptions(isolate=True, dump_dir="there"))) == text()


def _custom() -> ExportedProgram:
    @torch.library.custom_op("tests_of_keys::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_fake(torch.empty_like)
    return program(Model(op=twice))


def _with_metadata() -> ExportedProgram:
    exported = program()
    next(iter(exported.graph.nodes)).meta["whatever"] = 1
    return exported


def _on_meta() -> ExportedProgram:
    with torch.device("meta"):
        return program(nn.Linear(3, 3))


def lowering(**changed: Any) -> Options:
    return Options(OutputType.TOSA, lowering=LoweringOptions(**changed))


NOT_CACHED: Mapping[str, tuple[Callable[[], ExportedProgram], Options, str]] = {
    "decomposition_table": (program, Options(decompositions=DecompositionOptions({})), "decomposition_table is given"),
    "extra": (
        program,
        Options(decompositions=DecompositionOptions(extra={torch.ops.aten.relu: torch.relu})),
        "extra is given",
    ),
    "lowerings": (program, lowering(lowerings=("some",)), "lowerings are given"),
    "pipeline": (program, lowering(pipeline=lambda p: p), "a pipeline is given"),
    "fallback": (program, lowering(fallback=(OutputType.LINALG_ON_TENSORS,)), "a fallback is given"),
    "unsupported": (program, lowering(unsupported=Unsupported.OUTLINE), "what is unsupported is outlined"),
    "weights": (program, Options(importing=ImportOptions(weights=Weights.ARGS)), "weights are outside of the module"),
    "outline_layers": (program, Options(importing=ImportOptions(outline_layers=True)), "layers are outlined"),
    "tensors without memory": (_on_meta, Options(), "the program holds a Parameter that is not a plain tensor"),
    "contract": (program, lowering(contract=Contract.WARN), "the contract may warn"),
    "printing": (program, Options(printing=PrintOptions(stages=True)), "something is printed"),
    "dump_ir": (program, Options(running=RunOptions(dump_ir=".*")), "stages are dumped"),
    "custom operator": (_custom, Options(), "tests_of_keys.twice.default is not torch's own"),
    "metadata": (_with_metadata, Options(), "nodes have metadata of other kinds: whatever"),
}


@pytest.mark.parametrize("name", NOT_CACHED)
def test_uncacheable_lowerings_have_no_key(name: str):
    make, options, reason = NOT_CACHED[name]
    with pytest.raises(NotCached, match=reason):
        text(make(), options)


def test_hashed_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program_digest, "_LARGEST_READ", 12)  # the buffer's, and not the parameter's
    assert text()
    monkeypatch.setattr(program_digest, "_LARGEST_READ", 11)
    with pytest.raises(NotCached, match="constants, buffers and integers take more than 11 bytes"):
        text()


def test_different_tensors_of_one_name():
    with pytest.raises(NotCached, match="'weight' is not the same tensor in all programs"):
        key_of({"a": program(), "b": program()}, Options())
    model = Model()
    assert len(key_of({"a": program(model), "b": program(model)}, Options())[0]) == 64


def test_every_option_group_is_handled():
    # The fields of these are in the key by themselves, or known to change nothing.
    known = {"output_type", "export", "decompositions", "importing", "lowering", "printing", "running"}
    assert {each.name for each in dataclasses.fields(Options)} == known
    assert {each.name for each in dataclasses.fields(DecompositionOptions)} == {"table", "keep", "extra"}
