"""The README and the pages show what the tool prints, and link to what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
LEFT_OUT = "..."


def transcripts(page):
    """Yields the words of each command of a page, and the lines that the page shows of its output.

    A command goes on in lines that begin with `> `, as in a shell.
    """
    text = (ROOT / page).read_text()
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        command, *lines = block.splitlines()
        while lines and lines[0].startswith("> "):
            command += "\n" + lines.pop(0).removeprefix("> ")
        yield shlex.split(command.removeprefix("$ ")), lines


def pieces(lines):
    """Returns the parts of an output between lines that stand for what is left out."""
    found = [[]]
    for line in lines:
        if line == LEFT_OUT:
            found.append([])
        else:
            found[-1].append(line)
    return found


def place(piece, printed, start):
    """Returns where a piece of an output begins in all of it; -1: it is not there."""
    ends = range(start, len(printed))
    return next((n for n in ends if printed[n : n + len(piece)] == piece), -1)


SHOWN = [page for page in PAGES if list(transcripts(page))]


@pytest.mark.parametrize("page", SHOWN)
def test_a_page_shows_what_the_tool_prints(tracer, tmp_path, page):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    for (program, *arguments), lines in transcripts(page):
        assert program == "tracer"
        made = {path.name for path in tmp_path.iterdir()}
        # The others need a recording of the reader's own machine.
        if not any(word in made or word.startswith("fixtures/") for word in arguments):
            continue
        ran = tracer(*arguments)
        printed = [line.rstrip() for line in (ran.out + ran.err).splitlines()]
        first, *others = pieces(lines)
        assert printed[: len(first)] == first
        at = len(first)
        for piece in others:
            found = place(piece, printed, at)
            assert found >= 0, "\n".join([*piece, "is not in", *printed[at:]])
            at = found + len(piece)


def test_the_readme_and_the_page_of_each_verb_that_reads_a_trace_have_a_transcript():
    verbs = {arguments[0] for page in SHOWN for (_, *arguments), _ in transcripts(page)}
    assert "README.md" in SHOWN
    assert verbs >= {"doctor", "list", "record", "info", "report", "query", "explain", "compare"}
    assert verbs >= {"predict", "simulate", "import", "export", "study"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, heading = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            assert heading in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
