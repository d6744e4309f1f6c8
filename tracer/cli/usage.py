"""Mistakes in a command line that Typer finds, as errors of ours: one line, with the mend."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from tracer.probes.errors import UsageError

_NO_NUMBER = re.compile(": Input should be a valid (number|integer), unable to parse.*")
"""Words of the library that parses the values of options."""


@contextlib.contextmanager
def our_usage_errors(context: Any = None) -> Iterator[None]:
    """Raises UsageError for mistakes that Typer finds.

    An error without a context is about the verb that `context`, that of `tracer`, has called.
    """
    try:
        yield
    except typer.TyperException as error:
        said = error.format_message().rstrip(".")
        if (parsed := _NO_NUMBER.search(said)) is not None:
            number = "a whole number" if parsed[1] == "integer" else "a number"
            mend = f"give {number}{_unit(getattr(error, 'param', None))}"
            raise UsageError(f"{said[: parsed.start()]}: not {number}", mend) from None
        raise UsageError(said, _mend(said, getattr(error, "ctx", None) or context)) from None


def _unit(option: Any) -> str:
    """Returns the unit of an option whose value is a plain number."""
    return " of seconds, without a unit" if getattr(option, "metavar", "") == "SECONDS" else ""


def _mend(said: str, context: Any) -> str:
    if said.endswith("?"):  # It names a similar verb.
        return ""
    if context is None:
        return "see tracer -h"
    called = ["tracer", *_verbs(context)]
    if isinstance(context.command, TyperGroup) and "command" in said:
        *names, last = context.command.list_commands(context)
        return f"give {', '.join(names)} or {last}"
    if said.startswith("Missing") and (example := _example(context.command.help or "", called)):
        return f"e.g. {example}"
    if context.invoked_subcommand:
        called.append(context.invoked_subcommand)
    return f"see {' '.join(called)} -h"


def _verbs(context: Any) -> list[str]:
    """Returns the verb that a context is of, after those that it belongs to."""
    if context.parent is None:
        return []
    return [*_verbs(context.parent), context.info_name]


def _example(help: str, called: list[str]) -> str:
    """Returns the first command line of a help page that calls this verb."""
    found = re.search(rf"(sudo )?{re.escape(' '.join(called))} .*", help)
    return found[0] if found else ""
