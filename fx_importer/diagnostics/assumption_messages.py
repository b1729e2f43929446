"""Messages of assertions that are assumptions of a captured program. Without torch: passes on modules read them too."""

from __future__ import annotations

from fx_importer.errors import AssumptionError

PREFIX = "assumption: "
"""The start of the message of each assumption."""
END = " (assumed at capture)"
"""The end of the message. Engines may add text before and after."""


def message_of(text: str) -> str:
    """Return the message of the assertion of an assumption."""
    return f"{PREFIX}{text}{END}"


def violation_in(message: str, function: str) -> AssumptionError | None:
    """Return the error of ``function`` if ``message``, of an engine, quotes an assumption; else None."""
    _, quoted, text = message.partition(PREFIX)
    return AssumptionError(function, text.partition(END)[0]) if quoted else None
