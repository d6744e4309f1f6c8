"""The verbs, as a user runs them who has only installed the wheel, with exact answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scripts.packaging.errors import CannotPackage
from scripts.packaging.tree import Tree

CALLS = 10007
TRACE, FIXTURE = "x.trace", "lenet.trace"
_JOB = f"import os\nfor _ in range({CALLS}): os.getppid()"
_SQL = "SELECT count(*) AS calls FROM syscalls WHERE name = 'getppid'"
_LEAST_PAGE = 1 << 20
"""A page holds plotly.js, which alone is larger."""
_SIMULATED = ("simulate", FIXTURE, "--capacity", "64M", "--json")
_FOLDER = "/root"
_LOAD = ("--rate", "5", "--requests", "1")
_EXTRAS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("workloads", ("tracer", "workload", "run", "lenet", "--scale", "0.01")),
    ("workloads", ("tracer", "workload", "run", "lenet", "--containers", "1")),
    ("workloads", ("tracer", "workload", "run", "lenet", "--mode", "serve", *_LOAD)),
    ("workloads", ("tracer", "study", "run", "quick")),
    ("workloads", ("python", "-m", "tracer.workloads", "train", "lenet")),
    ("studies", ("tracer", "compare", "--group", "a=first", "--group", "b=second")),
    ("stacks", ("tracer", "record", "--stacks", "-o", "stacks.trace", "--", "true")),
    ("stacks", ("tracer", "doctor")),
    ("cluster", ("tracer", "report", TRACE, FIXTURE, "--scheduler", "local")),
    ("remote", ("tracer", "report", "https://127.0.0.1:1/x.trace")),
    ("gpu", ("tracer", "list")),
)
"""Commands that need an extra, and the extra that they name, in a base install."""


def checks(tree: Tree, root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields what is checked and the check. A check raises CannotPackage.

    The order matters: the first checks record, the later ones read the recordings.
    """
    home = tree.folder / _FOLDER.strip("/")
    shutil.copytree(root / "fixtures" / FIXTURE, home / FIXTURE)

    def tracer(*arguments: str) -> str:
        return tree.has_run("tracer", *arguments)

    def answer(*arguments: str) -> Any:
        return json.loads(tracer(*arguments))

    def page() -> None:
        tracer("report", TRACE, "--html", "page.html")
        size = (home / "page.html").stat().st_size
        _equal("the page has plotly.js", size > _LEAST_PAGE, True)

    def simulates() -> None:
        here = subprocess.run(
            [sys.executable, "-m", "tracer", *_SIMULATED],
            cwd=root / "fixtures",
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        )
        _equal("the what-if of a fixture", answer(*_SIMULATED), json.loads(here.stdout))

    def lists() -> None:
        for words in (("list",), ("workload", "list"), ("study", "list")):
            tracer(*words)

    def repeats() -> None:
        for name in (TRACE, FIXTURE):
            for group in ("first", "second"):
                shutil.copytree(home / name, home / group / name)

    yield "doctor", lambda: _equal("doctor", answer("doctor", "--json")["can_record"], True)
    yield "lists", lists
    yield (
        "record",
        lambda: _equal("stdout", tracer("record", "-o", TRACE, "--", "python3", "-c", _JOB), ""),
    )
    yield (
        f"query: {CALLS} calls",
        lambda: _equal("calls", answer("query", TRACE, _SQL, "--json"), [{"calls": CALLS}]),
    )
    yield (
        "report: no loss",
        lambda: _equal("losses", answer("info", TRACE, "--json")["loss"]["events"], 0),
    )
    yield "report", lambda: _holds(tracer("report", TRACE), "0 events lost.")
    yield "report --html", page
    yield "simulate", simulates
    yield "groups of copies", repeats
    for extra, command in _EXTRAS:
        yield f"{' '.join(command)}: [{extra}]", partial(_needs, tree, command, extra)


def _needs(tree: Tree, command: Sequence[str], extra: str) -> None:
    """Checks that a command names the extra that it lacks."""
    ran = tree.run(*command)
    said = " ".join((ran.out + ran.err).split())
    _holds(said, f"pip install 'traintrace[{extra}]'")
    if "Traceback" in said:
        raise CannotPackage(f"a traceback: {said[-500:]}")


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise CannotPackage(f"{what}: {found}, not {expected}"[:1500])


def _holds(said: str, part: str) -> None:
    if part not in said:
        raise CannotPackage(f"{part!r} is not in the output, which ends with: {said[-800:]}")
