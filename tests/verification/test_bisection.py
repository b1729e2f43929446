"""Bisection locates wrong decompositions and wrong backends."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fx_importer import Inputs, UsageError, compare_decompositions, lower
from fx_importer.engines import JitBackend
from fx_importer.verification import DivergenceCause, bisection, single_op_program

aten = torch.ops.aten


def wrong_gelu(x, approximate="none"):
    """Correct except at one value of its argument."""
    if approximate == "tanh":
        return x * torch.sigmoid(1.702 * x)
    return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))


class Block(nn.Module):
    def __init__(self, approximate: str):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 8)
        self.act = nn.GELU(approximate=approximate)

    def forward(self, x):
        y = self.norm(x)
        y = self.down(self.act(self.up(y)))
        return (x + torch.sigmoid(y) * y) * 0.9 - torch.tanh(y) * 0.1


class Deep(nn.Module):
    """Twenty blocks of eleven nodes and six weights; one block has another gelu."""

    def __init__(self, depth: int = 20, odd: int = 13):
        super().__init__()
        self.blocks = nn.Sequential(*(Block("tanh" if i == odd else "none") for i in range(depth)))

    def forward(self, x):
        return self.blocks(x)


TABLE = {aten.gelu.default: wrong_gelu}


@pytest.fixture(autouse=True)
def seed(monkeypatch, tmp_path):
    torch.manual_seed(0)
    monkeypatch.setenv("FX_IMPORTER_DUMP_DIR", str(tmp_path))


def test_wrong_rule_in_a_deep_model_is_located_and_its_script_fails(tmp_path):
    program = torch.export.export(Deep().eval(), (torch.randn(2, 3, 8),))
    assert sum(node.op == "call_function" for node in program.graph.nodes) >= 200
    found = compare_decompositions(program, decomposition_table=TABLE)
    assert found is not None
    assert (found.node, found.operator, found.cause) == ("gelu_13", "aten.gelu.default", DivergenceCause.ITSELF)
    assert (found.module, found.source) == ("blocks.13.act", "y = self.down(self.act(self.up(y)))")
    assert (found.takes, found.gives) == (("float32[2x3x12]", "approximate='tanh'"), ("float32[2x3x12]",))
    assert "the operation itself is wrong" in str(found)
    assert found.script is not None
    assert found.script.is_relative_to(tmp_path)
    ran = subprocess.run([sys.executable, found.script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "mismatch" in ran.stdout


def test_on_the_jit():
    x = torch.randn(2, 8)
    lowered = lower(Deep(2, odd=1), x, output_type="linalg", decomposition_table=TABLE)
    found = lowered.bisect(x, backend="jit", isolate=False)
    assert found is not None
    assert (found.node, found.backend, found.cause) == ("gelu_1", "jit", DivergenceCause.ITSELF)
    assert "backends=['jit']" in (found.script or Path()).read_text()
    assert lowered.bisect(x, isolate=False, atol=1.0) is None
    right = lower(Deep(1), x, output_type="linalg")
    assert right.bisect(x, isolate=False) is None


def in_place(x):
    y = x * 2
    y.add_(1).relu_()
    return torch.nn.functional.gelu(y, approximate="tanh").mul_(3) + y


def several_results(x):
    top = x.topk(2)
    return torch.nn.functional.gelu(top.values) + top.indices


def branches(x):
    return torch.cond(x.sum() > 100, torch.sin, lambda x: torch.nn.functional.gelu(x, approximate="tanh"), (x + 1,)) * 2


def of_integers(x):
    return (x * 10).int().bitwise_and(6) + 1


def a_list(x):
    return torch.stack([x + 1, x * 2]).sum(0)


def wrong_topk(x, k, dim=-1, largest=True, sorted=True):
    values, indices = torch.sort(x, dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 1, k)


@pytest.mark.slow_rows("^branches-rule3-cond$", "^in_place-rule1-relu_$")
@pytest.mark.parametrize(
    "function, rule, node",
    [
        (in_place, TABLE, "gelu"),
        (in_place, {aten.relu.default: torch.abs}, "relu_"),
        (several_results, {aten.topk.default: wrong_topk}, "topk"),
        (branches, TABLE, "cond"),
        (of_integers, {aten.bitwise_and.Scalar: torch.bitwise_or}, "bitwise_and"),
        (a_list, {aten.stack.default: lambda xs, dim=0: aten.cat([x.unsqueeze(dim) * 2 for x in xs], dim)}, "stack"),
    ],
)
def test_located_node(function, rule, node):
    found = compare_decompositions(function, torch.randn(3, 4), decomposition_table=rule)
    assert found is not None
    assert (found.node, found.cause) == (node, DivergenceCause.ITSELF), str(found)
    if node != "cond":  # torch records no line in a plain function
        assert (found.where or "").startswith(__file__)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = nn.Buffer(torch.zeros(4))

    def forward(self, x):
        self.total.add_(nn.functional.gelu(x, approximate="tanh").sum(0))
        return x + 1


def test_only_the_state_is_wrong_and_sizes_are_dynamic():
    rows = {0: torch.export.Dim("rows")}
    lowered = lower(
        Counts(), torch.randn(3, 4), mutation="functional", decomposition_table=TABLE, dynamic_shapes={"x": rows}
    )
    found = lowered.bisect(inputs=Inputs((torch.randn(5, 4),), {}, "main"), backend="eager")
    assert found is not None
    assert (found.node, found.gives) == ("gelu", ("float32[5x4]",))


class FewResults(JitBackend):
    """Fails where there is more than one result."""

    def load(self, module, func_name="main"):
        loaded = super().load(module, func_name)

        def run(*arguments):
            results = loaded(*arguments)
            if len(results) > 1:
                raise RuntimeError("too many results")
            return results

        return run


def test_nodes_are_tried_one_by_one_without_intermediate_outputs():
    x = torch.randn(2, 8)
    lowered = lower(in_place, x, output_type="linalg", decomposition_table=TABLE)
    found = lowered.bisect(x, backend=FewResults())
    assert found is not None
    assert (found.node, found.cause, found.agreeing, found.script) == ("gelu", DivergenceCause.ITSELF, 0, None)
    assert "too many results" in str(found)


class WrongOnce(JitBackend):
    """Wrong in the first module that it loads, correct in all others."""

    def __init__(self):
        super().__init__()
        self.loaded = []

    def load(self, module, func_name="main"):
        loaded, first = super().load(module, func_name), not self.loaded
        self.loaded.append(module)
        return lambda *arguments: tuple(each + first for each in loaded(*arguments))


def test_mismatch_that_no_node_explains():
    x = torch.randn(2, 8)
    found = lower(in_place, x, output_type="linalg").bisect(x, backend=WrongOnce())
    assert found is not None
    assert (found.node, found.cause) == ("add", DivergenceCause.CONTEXT)


def test_intermediate_outputs_in_chunks(monkeypatch):
    monkeypatch.setattr(bisection, "CHUNK", 500)
    found = compare_decompositions(Deep(2, odd=1), torch.randn(2, 8), decomposition_table=TABLE)
    assert found is not None
    assert (found.node, found.cause) == ("gelu_1", DivergenceCause.ITSELF)


def test_node_without_a_single_op_program_is_reported(monkeypatch):
    def fail(*_):
        raise ValueError("not today")

    monkeypatch.setattr(single_op_program.SingleOpProgram, "compare", fail)
    found = compare_decompositions(in_place, torch.randn(3, 4), decomposition_table=TABLE)
    assert found is not None
    assert (found.node, found.cause) == ("gelu", DivergenceCause.UNKNOWN)
    assert "gelu cannot be lowered alone: ValueError: not today" in str(found)


def local_rule(scale):
    def rule(x):
        return aten.cos.default(x) * scale + helper(x)

    return rule


def helper(x):
    return x * len(sys.argv[:0])


@pytest.mark.parametrize(
    "rule", [lambda x: aten.cos.default(x), local_rule(2.0)], ids=["lambda", "function that reads others"]
)
def test_script_copies_a_rule_that_cannot_be_imported(rule):
    found = compare_decompositions(torch.sin, torch.randn(3), decomposition_table={aten.sin.default: rule})
    assert found is not None
    assert found.script is not None  # which was run before, and mismatched
    assert "cos" in found.script.read_text()


def test_rule_without_source_is_named():
    rule = eval("lambda x: torch.cos(x)", {"torch": torch})
    found = compare_decompositions(torch.sin, torch.randn(3), decomposition_table={aten.sin.default: rule})
    assert found is not None
    assert found.script is None
    assert "no script reproduces it: '<lambda>' (<string>:1) cannot be imported, and its source cannot be" in str(found)


def test_usage_errors():
    lowered = lower(torch.sin, torch.ones(3), output_type="raw")
    with pytest.raises(UsageError, match="no backend runs raw by itself"):
        lowered.bisect(torch.ones(3))
    with pytest.raises(UsageError, match="there are no values to compare: jit unsupported"):
        lowered.bisect(torch.ones(3), backend="jit", isolate=False)
    with pytest.raises(UsageError, match="or inputs=Inputs"):
        lowered.bisect(torch.ones(3), inputs=Inputs((torch.ones(3),)))
