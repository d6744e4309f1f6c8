"""Calls of a verb of `tracer` in this process, with checks of its output."""

from __future__ import annotations

import contextlib
import io
import json
from functools import cache
from typing import Any

from tracer.cli.main import load


@cache
def _command(name: str) -> Any:
    return load(name)


def called(verb: str, *arguments: object) -> str:
    """Calls a verb and returns its stdout. Raises the TracerError of a verb that refuses.

    Raises AssertionError if the verb prints control characters without --json, or invalid JSON.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        _command(verb).main(list(map(str, arguments)), prog_name="tracer", standalone_mode=False)
    text = out.getvalue()
    for said in (text, err.getvalue()):
        odd = {one for one in said if not one.isprintable() and one != "\n"}
        assert not odd or "--json" in arguments, f"{verb} prints {sorted(odd)}"
    if "--json" in arguments:
        json.loads(text, parse_constant=_refuse)
    return text


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
