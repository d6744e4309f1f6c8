"""Help pages on a terminal of 80 columns."""

import inspect
import os
import re

import pytest
import typer

from tracer.cli.main import find_verbs


def described():
    """Returns the docstring of each verb by the words that call it."""
    found = {}
    for name, entry in find_verbs().items():
        verb = entry.load()
        if isinstance(verb, typer.Typer):
            for nested in verb.registered_commands:
                found[f"{name} {nested.name}"] = nested.callback.__doc__
        else:
            found[name.replace(".", " ")] = verb.__doc__
    return found


@pytest.mark.parametrize("verb", sorted(described()))
def test_no_line_of_a_description_is_folded_at_80_columns(tracer, verb):
    """A fold within a line leaves single words behind. The first paragraph is folded as a whole."""
    ran = tracer(*verb.split(), "--help", env={**os.environ, "COLUMNS": "80", "TERM": "dumb"})
    rest = inspect.cleandoc(described()[verb]).partition("\n\n")[2]
    lines = re.sub(r"\[/?bold\]", "", rest).splitlines()
    shown = {line.rstrip() for line in ran.out.splitlines()}
    assert [line for line in lines if line and f" {line}" not in shown] == []
