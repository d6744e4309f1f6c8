"""A verb of `tracer`, called in this process, and what it may print."""

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
    """Call a verb; returns what it prints on stdout. Raises a TracerError where it refuses.

    AssertionError where it speaks to a terminal, or prints other JSON than JSON is.
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
