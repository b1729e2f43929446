"""Declaration of options as fields of dataclasses, see `fx_importer.options`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any

from fx_importer.output_types import OutputType


@dataclass(frozen=True)
class Option:
    """The declaration of an option."""

    name: str
    """The field of its dataclass. The command-line option has the same name, with dashes."""
    group: str
    """The field of `Options` that holds it; empty for a field of `Options` itself."""
    keyword: str | None
    """The keyword of `lower`, or None if there is none."""
    default: Any
    help: str
    """Its effect, in one sentence or two."""
    python: str = ""
    """Sentences that apply to the keyword only."""
    command: str = ""
    """Sentences that apply to the command-line option only."""
    metavar: str | None = None
    has_text: bool = True
    """Whether its values have a text form, for the command line and for reports."""

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The accepted names, if the option is a policy."""
        return tuple(member.value for member in type(self.default)) if isinstance(self.default, Enum) else ()

    @property
    def keyword_help(self) -> str:
        """The documentation of the keyword."""
        choices = f"One of {', '.join(map(repr, self.choices))}." if self.choices else ""
        return " ".join(filter(None, (self.help, self.python, choices)))

    @property
    def keyword_default(self) -> Any:
        """The default in the spelling that users pass: the name of a policy or output type, None for no mapping."""
        if isinstance(self.default, Enum | OutputType):
            return self.default.value
        return None if self.default == {} else self.default


def option(
    default: Any,
    help: str,
    *,
    keyword: str | None = "",
    python: str = "",
    command: str = "",
    metavar: str | None = None,
    has_text: bool = True,
) -> Any:
    """Declare a field of an options dataclass.

    Args:
        default: the default value. A mapping is not shared among instances.
        help: what the option does.
        keyword: the keyword of `lower`, by default the field's name; None if there is none.
        python: sentences that apply to the keyword only.
        command: sentences that apply to the command-line option only.
        metavar: the placeholder of the value in ``--help``.
        has_text: whether its values have a text form.
    """
    metadata = {
        "option": lambda name, **facts: Option(
            name,
            keyword=name if keyword == "" else keyword,
            help=help,
            python=python,
            command=command,
            metavar=metavar,
            has_text=has_text,
            **facts,
        )
    }
    if isinstance(default, dict):
        return field(default_factory=dict[Any, Any], metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OptionGroup:
    """An options dataclass that is a field of another."""

    options: type
    heading: str
    """The heading of its options in ``--help`` and in docs/options.md."""


def group(options: type, heading: str) -> Any:
    """Declare a field that holds the options of the dataclass ``options``."""
    return field(default_factory=options, metadata={"group": OptionGroup(options, heading)})


def groups_of(options: type) -> dict[str, OptionGroup]:
    """Return the groups that a dataclass declares, by field name."""
    return {field_.name: field_.metadata["group"] for field_ in fields(options) if "group" in field_.metadata}


def declared(options: type, group: str = "") -> tuple[Option, ...]:
    """Return the options that the fields of a dataclass declare, as members of ``group``."""
    return tuple(
        field_.metadata["option"](
            name=field_.name,
            group=group,
            default={} if field_.default is MISSING else field_.default,
        )
        for field_ in fields(options)
        if "option" in field_.metadata
    )
