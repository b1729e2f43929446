"""Assertions that a factorization has succeeded, where eager raises an error."""

from __future__ import annotations

from typing import Any

import torch

from fx_importer.fx_graph.operators import aten


def checked(results: tuple[Any, ...], check_errors: bool, name: str) -> tuple[Any, ...]:
    """Return ``results``; with ``check_errors``, assert that the last one, LAPACK's ``info``, is zero.

    Assertions are dropped unless the caller of the compiler asks for them, with ``runtime_asserts``.
    """
    if check_errors:
        failed = torch.any(torch.ne(results[-1], 0))
        aten._assert_async.msg(torch.logical_not(failed), f"torch.linalg.{name} failed: a matrix is singular or unfit")
    return results
