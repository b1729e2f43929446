"""Assertions of torch that answer questions of the model's code, as assumptions on boolean tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from fx_importer.errors import ExportError
from fx_importer.frontend.assumptions.decided_sizes import (
    LISTS,
    check_decided_sizes,
    emit_assumption,
    list_assumed_number,
)
from fx_importer.frontend.assumptions.number_tensors import NumberTensors
from fx_importer.frontend.assumptions.result_sizes import counted_size, source_of_size
from fx_importer.frontend.assumptions.value_questions import Question, ValueQuestions
from fx_importer.fx_graph.emission import emit, value_of
from fx_importer.fx_graph.operators import aten
from fx_importer.fx_graph.programs import with_rewritten_graphs
from fx_importer.symbolic.guards import environment_of

_ASSERTED = re.compile(r"Runtime assertion failed for expression (.*) on node '.*'", re.DOTALL)
_ANSWERED = re.compile(r"propagate_real_tensors: (.*) == (.*)", re.DOTALL)
"""Torch's reason for an assertion: the expression, and its value for the example inputs."""


def with_assumptions(program: ExportedProgram, questions: ValueQuestions) -> ExportedProgram:
    """Return ``program`` with an assumption for each of ``questions``, and without their assertions of torch.

    Raises:
        ExportError: if torch has not added the assertion of a question, asked it in a body of control flow, or
            answered with a number that is not finite.
    """
    _check_environments(program, questions)
    _check_answers(questions)
    questions_of = _questions_by_assertion(program, questions)
    _forget_values(program)
    if not questions_of:
        return program
    checked: set[str] = set()
    root = program.graph_module

    def rewrite(graph: fx.Graph, owner: fx.GraphModule) -> None:
        counted: set[fx.Node] = set()
        for node in graph.nodes:
            if node.target is not aten._assert_scalar.default or not (match := _ASSERTED.fullmatch(str(node.args[1]))):
                continue
            if (question := questions_of.get(match[1])) is not None:
                numbers = NumberTensors(node)
                condition = numbers.checked(node.args[0], question)
                counted |= numbers.counted
                emit_assumption(node, condition, question)
                graph.erase_node(node)
                checked.add(match[1])
        if owner is root:
            check_decided_sizes(graph)
        _remove_numbers(graph)
        for node in graph.find_nodes(op="call_function", target=aten.scalar_tensor.default):
            _with_counted_number(node, counted)
        for node in [node for node in graph.nodes if node.target in LISTS and node.users]:
            list_assumed_number(node)

    program = with_rewritten_graphs(program, rewrite)
    if unchecked := [question for text, question in questions_of.items() if text not in checked]:
        raise without_check(unchecked)
    return program


def _with_counted_number(number: fx.Node, counted: set[fx.Node]) -> None:
    """Replace the model's own tensor of a size that is counted: the size is a constant of the example inputs."""
    size: Any = number.args[0]
    if isinstance(size, fx.Node) and source_of_size(size) in counted:
        count = counted_size(size, partial(emit, number))
        if count is not None:
            number.replace_all_uses_with(emit(number, aten._to_copy.default, count, dtype=value_of(number).dtype))
            number.graph.erase_node(number)


def without_check(questions: Sequence[Question]) -> ExportError:
    """Return the error for questions whose assertions torch cannot compute."""
    listed = "; ".join(question.text for question in questions)
    first = questions[0]
    return ExportError(
        f"the program cannot check what its capture assumes: torch computes no such number at run time for {listed}. "
        "Ask the tensor and not its number: (n / 10 > 2).all(), not n.item() / 10 > 2",
        f"{first.file}:{first.line}" if first.file else "",
    )


def _check_environments(program: ExportedProgram, questions: ValueQuestions) -> None:
    """Raise ExportError if a body of control flow asks a question: torch drops the assertions of its own tracing."""
    own = environment_of(program)
    for environment, question in questions.environments:
        if environment is not own:
            raise ExportError(
                f"a body of control flow (torch.cond, while_loop, scan, map) branches on the value of a tensor, which "
                f"the program cannot check: {question.text}. Accepted are questions outside of these bodies: ask it "
                f"before the call, or write the branch with torch.cond or torch.where",
                f"{question.file}:{question.line}" if question.file else "",
            )


def _check_answers(questions: ValueQuestions) -> None:
    """Raise ExportError if a number that Python reads is NaN or infinite: torch drops such an assertion."""
    for question in questions.asked.values():
        if question.answer in ("nan", "oo", "-oo", "zoo"):
            number = question.answer.replace("oo", "inf")
            raise ExportError(
                f"`{question.expression}` reads a number that is {number} for the example inputs, which no check "
                "compares. Ask the tensor instead (torch.isnan, torch.isinf), or capture with finite numbers",
                f"{question.file}:{question.line}" if question.file else "",
            )


def _forget_values(program: ExportedProgram) -> None:
    """Remove the values of the example inputs from ``program``: later questions would be answered without a check."""
    if (environment := environment_of(program)) is not None:
        environment.real_tensor_prop_unbacked_vals.clear()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            for leaf in tree_leaves(node.meta.get("val")):
                if isinstance(leaf, FakeTensor):
                    leaf.real_tensor = None
                    leaf.fake_mode.propagate_real_tensors = False


def _remove_numbers(graph: fx.Graph) -> None:
    """Remove assertions that the assumptions imply, and the numbers that only assertions used."""
    for node in reversed(graph.nodes):
        value = value_of(node)
        if node.target is aten._assert_scalar.default:
            holds = value_of(node.args[0])
            implied = holds is True or (isinstance(holds, torch.SymBool) and _is_true(holds.node.expr))
        else:
            implied = node.op == "call_function" and isinstance(value, bool | int | float | _SYMBOLIC)
        if implied and not node.users:
            graph.erase_node(node)


def _is_true(condition: sympy.Basic) -> bool:
    """Return whether ``condition`` always holds, such as that a bool which is converted to an integer is at most 1."""
    return sympy.piecewise_fold(condition) == sympy.true


_SYMBOLIC = torch.SymBool | torch.SymInt | torch.SymFloat


def _questions_by_assertion(program: ExportedProgram, questions: ValueQuestions) -> dict[str, Question]:
    """Return the questions by the text of the expression that torch asserts."""
    environment = environment_of(program)
    if environment is None:
        return {}
    asserted: dict[str, Question] = {}
    for assertion in (assertion for several in environment.deferred_runtime_asserts.values() for assertion in several):
        if match := _ANSWERED.fullmatch(str(assertion.msg)):
            unknown = Question("", 0, match[1], match[2])
            asserted.setdefault(str(assertion.expr), questions.asked.get((match[1], match[2]), unknown))
    return asserted
