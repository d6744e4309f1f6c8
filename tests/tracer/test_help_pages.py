"""Help pages on a terminal of 80 columns."""

import itertools
import os

import pytest
import typer

from tracer.cli.main import find_verbs


def verbs():
    """Returns all verbs, and those of verbs that have verbs of their own, by their words."""
    found = []
    for name, entry in find_verbs().items():
        verb = entry.load()
        if isinstance(verb, typer.Typer):
            found += [f"{name} {nested.name}" for nested in verb.registered_commands]
        else:
            found.append(name.replace(".", " "))
    return sorted(found)


@pytest.mark.parametrize("verb", verbs())
def test_paragraphs_of_a_description_fill_their_lines_and_no_example_is_broken(tracer, verb):
    ran = tracer(*verb.split(), "--help", env={**os.environ, "COLUMNS": "80", "TERM": "dumb"})
    shown = [line[1:].rstrip() for line in ran.out.partition("╭")[0].splitlines()]
    for line, following in itertools.pairwise(shown):
        if line and following:
            assert not line.startswith(" "), f"an example is broken: {line}"
            assert len(line) + len(following.split()[0]) >= 77, f"a line is short: {line}"
