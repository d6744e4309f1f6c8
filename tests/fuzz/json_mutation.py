"""Random changes of JSON and TOML: of values, keys and lists, or of the text."""

from __future__ import annotations

import json
import tomllib
from math import isfinite
from random import Random
from typing import Any

from tests.fuzz.mutation import NUMBERS, mutated_text

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, float("nan"), float("inf"), "", "0", "x",
    "\0", "\x1b[2J", "../..", "/", "a" * 5000, "\ud800", "\u202e", "two\nlines", "=1+1", "<b>",
    [], [[]], {}, {"": None}, [1, "x", None], 1 << 63, 1 << 64, -(1 << 63), "8:0", "100.5 %",
)  # fmt: skip


def mutated_json(chance: Random, data: bytes) -> bytes:
    """Returns JSON with some changed values or damaged text."""
    if chance.random() < 0.2:
        return mutated_text(chance, data)
    return json.dumps(_changed(chance, json.loads(data))).encode()


def _changed(chance: Random, value: Any) -> Any:
    held = [value]
    for _ in range(chance.choice((1, 1, 2, 4))):
        _change(chance, _places(held) or [(held := [None], 0)])
    return held[0] if held else None


def mutated_json_lines(chance: Random, data: bytes) -> bytes:
    """Returns lines of JSON, one or two of them changed."""
    lines = data.splitlines()
    for _ in range(chance.choice((1, 2))):
        if lines:
            at = chance.randrange(len(lines))
            try:
                lines[at] = mutated_json(chance, lines[at])
            except ValueError:  # damaged by an earlier change
                lines[at] = mutated_text(chance, lines[at])
    return b"".join(line + b"\n" for line in lines)


def _odd(chance: Random) -> Any:
    return chance.choice(NUMBERS) if chance.random() < 0.4 else chance.choice(_ODD)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns the places of all values: (an object or a list, its key or its index)."""
    found: list[tuple[Any, Any]] = []
    inner = [value]
    while inner:
        outer = inner.pop()
        keys = range(len(outer)) if isinstance(outer, list) else list(outer)
        for key in keys:
            found.append((outer, key))
            if isinstance(outer[key], list | dict):
                inner.append(outer[key])
    return found


def _change(chance: Random, places: list[tuple[Any, Any]]) -> None:
    outer, key = chance.choice(places)
    old = outer[key]
    match chance.randrange(6):
        case 0:
            del outer[key]
        case 1 if isinstance(old, str):
            text = mutated_text(chance, old.encode("utf-8", "replace"))
            outer[key] = text.decode("utf-8", "replace")
        case 2:
            other, there = chance.choice(places)
            if there in other if isinstance(other, dict) else there < len(other):
                outer[key] = json.loads(json.dumps(other[there]))
        case 3 if isinstance(old, list) and old:
            old.extend(json.loads(json.dumps(old)) * chance.choice((1, 1, 50)))
        case 4 if isinstance(old, dict):
            old[str(_odd(chance))] = _odd(chance)
        case _:
            outer[key] = json.loads(json.dumps(_odd(chance)))


def mutated_toml(chance: Random, data: bytes) -> bytes:
    """Returns TOML with some changed values or damaged text."""
    if chance.random() < 0.3:
        return mutated_text(chance, data)
    changed = _changed(chance, tomllib.loads(data.decode()))
    if not isinstance(changed, dict):
        return mutated_text(chance, data)
    lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in changed.items()]
    return "\n".join(lines).encode("utf-8", "replace")


def _toml(value: Any) -> str:
    """Returns a value as TOML; null, which TOML lacks, becomes an empty string."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value.encode("utf-8", "replace").decode())
    if isinstance(value, float) and not isfinite(value):
        return "nan" if value != value else "inf"
    return json.dumps("" if value is None else value)
