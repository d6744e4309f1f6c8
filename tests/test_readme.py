"""The README shows what the tool prints, and links to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TRANSCRIPTS = re.findall(r"^```console\n\$ tracer (.*)\n((?:.*\n)*?)\.\.\.\n```$", README, re.M)
PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize(("arguments", "shown"), TRANSCRIPTS)
def test_a_transcript_begins_as_the_output_does(tracer, arguments, shown):
    printed = tracer(*arguments.split(), cwd=ROOT).out
    lines = [line.rstrip() for line in printed.splitlines()]
    assert shown.splitlines() == lines[: len(shown.splitlines())]


def test_there_is_a_transcript_of_a_report():
    assert [arguments.split()[0] for arguments, _ in TRANSCRIPTS] == ["report"]


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
