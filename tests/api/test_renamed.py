"""Deprecated names and import paths of version 0.1 still work, and warn with the new name."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

import fx_importer
from fx_importer import CrashedError, UnsupportedNode, UnsupportedNodeError, UnsupportedProgramError, errors, importing
from fx_importer.api import renamed
from fx_importer.installation.findings import Finding
from fx_importer.reduction import Kind, Symptom


@pytest.mark.parametrize("old, new", renamed.MODULES.items())
def test_moved_module_warns(old: str, new: str):
    sys.modules.pop(f"fx_importer.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"it is fx_importer.{new} now"):
        module = importlib.import_module(f"fx_importer.{old}")
    assert module is importlib.import_module(f"fx_importer.{new}")
    assert (module.__spec__ and module.__spec__.name) == f"fx_importer.{new}"


@pytest.mark.parametrize("old, new", renamed.NAMES.items())
def test_renamed_name_warns(old: str, new: str):
    with pytest.warns(DeprecationWarning, match=f"it is called fx_importer.{new} now"):
        found = getattr(fx_importer, old)
    assert found is getattr(fx_importer, new)


def test_unknown_name_is_an_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(fx_importer, "no_such_name")  # noqa: B009


def test_refusals_is_a_deprecated_alias():
    error = UnsupportedProgramError("unsupported:", [UnsupportedNode("x", "no reason")])
    with pytest.warns(DeprecationWarning, match="UnsupportedProgramError.refusals is deprecated"):
        assert error.refusals == error.unsupported_nodes


@pytest.mark.parametrize(
    "module, old, new",
    [(errors, "Refusal", UnsupportedNode), (importing, "Refused", UnsupportedNodeError)],
    ids=["errors", "importing"],
)
def test_renamed_class_warns(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated"):
        assert getattr(module, old) is new


@pytest.mark.parametrize(
    "carrier, new",
    [
        (CrashedError("the pass", None, "abort"), "output"),
        (Symptom(Kind.CRASHED, "linalg", message="abort"), "message"),
        (Finding("jit", False, "abort"), "message"),
    ],
    ids=["CrashedError", "Symptom", "Finding"],
)
def test_said_is_a_deprecated_alias(carrier, new: str):
    with pytest.warns(DeprecationWarning, match=f"{type(carrier).__name__}.said is deprecated: .*{new} now"):
        assert carrier.said == getattr(carrier, new) == "abort"


@pytest.mark.parametrize("old, new", [("holes", "operator_stubs"), ("census", "operator_output_types")])
def test_renamed_attribute_of_lowered_warns(old: str, new: str):
    lowered = fx_importer.lower(torch.relu, torch.ones(2), output_type="torch")
    with pytest.warns(DeprecationWarning, match=f"is called Lowered.{new} now"):
        assert getattr(lowered, old) is getattr(lowered, new)
