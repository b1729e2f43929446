"""Logging under ``fx_importer``."""

from __future__ import annotations

import logging

import torch

from fx_importer import lower


def test_stages_are_logged():
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log = logging.getLogger("fx_importer")
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        lower(torch.nn.ReLU(), torch.ones(2), output_type="tosa")
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    assert [each.split(" ")[0] for each in messages][:2] == ["frontend", "decompositions"]
    assert all(" passed, " in each for each in messages)
