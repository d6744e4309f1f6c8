"""The few rules of plain English that a program can check; CONTRIBUTING.md has the others."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPENERS = (
    *("What", "Whatever", "Of", "As", "Where", "Whether", "How", "When", "Which", "Who", "Whose"),
    *("Why", "That", "For", "By", "In", "So", "Its", "Both", "From", "To", "With"),
    *("Return", "Make", "Raise", "Give", "Let", "Put", "Have"),
)
"""Words that open no docstring: a verb in the third person or a noun does."""
PHRASES = ("seed 00", "seeds 00", "one and the same", "is not said", "of none of")


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields lines and docstrings, those below constants and attributes, too."""
    for node in ast.walk(tree):
        parts = getattr(node, "body", ())
        for part in parts if isinstance(parts, list) else ():
            value = part.value if isinstance(part, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield part.lineno, value.value


@pytest.mark.parametrize(
    "folder", ["tracer", "probes", "analysis", "workloads", "benchmarks", "tests"]
)
def test_docstrings_open_with_a_verb_or_a_noun(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in tracked(f"{folder}/*.py")
        for line, text in docstrings(ast.parse(path.read_text()))
        if text.strip() and re.split(r"\W", text.strip(), maxsplit=1)[0] in OPENERS
    ]
    assert found == []


def test_names_of_tests_open_with_a_subject():
    opened = re.compile(r"def (test_(?:what|of|as|where|whether|how|which|who|whose)_\w+)")
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked("tests/*.py")
        for name in opened.findall(path.read_text())
    ]
    assert found == []


def test_no_text_has_a_phrase_that_readers_stumble_over():
    texts = tracked("*.py", "*.md", "*.toml", "*.c", "*.h", "*.j2", "*.sh", "Makefile")
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in texts
        if path != Path(__file__)
        for phrase in PHRASES
        if phrase in path.read_text(errors="replace")
    ]
    assert found == []


def test_the_list_of_a_package_s_modules_names_all_of_them():
    """A package may have no list."""
    wrong = []
    for path in tracked("tracer/*__init__.py", "probes/*", "analysis/*", "workloads/*"):
        if path.name != "__init__.py":
            continue
        listed = set(re.findall(r"\b(\w+\.py)\b", ast.get_docstring(ast.parse(path.read_text()))))
        there = {one.name for one in tracked(f"{path.parent}/*.py") if one.parent == path.parent}
        if listed and listed != there - {"__init__.py", "__main__.py"}:
            off = sorted(listed ^ (there - {"__init__.py", "__main__.py"}))
            wrong.append(f"{path.relative_to(ROOT)}: {', '.join(off)}")
    assert wrong == []
