"""Help pages name one kind of value by one word, in all verbs and in the jobs' own commands."""

from __future__ import annotations

from enum import Enum
from importlib import metadata

import pytest
import typer

from tracer.cli.main import GROUP, load
from tracer.workloads.cli import app as jobs

VALUES = {
    *("N", "F", "SIZE", "SECONDS", "SHARE", "FACTOR", "HZ", "PID", "MAJOR:MINOR", "EPOCH:STEP"),
    *("NAME", "WHAT", "WHERE", "WHEN", "SET", "EVENT", "PROBE", "IMAGE"),
    *("T", "FILE", "DIR", "DIR.trace", "PATH", "URL", "ADDRESS", "NAME=T,T"),
}
"""The words. A list of values has `,..` behind its word."""


def commands():
    """Yields the name of each command with its options."""
    names = [entry.name for entry in metadata.entry_points(group=GROUP)]
    found = {name: load(name) for name in names if "." not in name}
    found["python -m tracer.workloads"] = typer.main.get_command(jobs)
    for name, command in sorted(found.items()):
        nested = getattr(command, "commands", None) or {"": command}
        yield from ((f"{name} {verb}".strip(), one.params) for verb, one in nested.items())


@pytest.mark.parametrize(("name", "options"), list(commands()))
def test_an_option_s_value_has_a_word_that_other_verbs_use_too(name, options):
    named = {
        option.opts[-1]: str(option.metavar or "").removesuffix(",..")
        for option in options
        if option.param_type_name == "option" and not option.is_flag
        if not isinstance(option.default, Enum)  # the help page lists its values
    }
    assert {option: word for option, word in named.items() if word not in VALUES} == {}
