"""`left_out.json`: counts of things that a recorder found and did not write, by stream, reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tracer.probes.loss import Gap
from tracer.store.checked import Count, encoded, read_json
from tracer.store.files import write_whole

FILE = "left_out.json"

_MOST_BYTES = 1 << 16
_NO_CPU = -1

_Facts = dict[str, dict[str, Count]]


def note(raw: Path, stream: str, counts: Mapping[str, int]) -> None:
    """Adds counts of things that a stream lacks. OSError if the file cannot be written.

    The keys of `counts` are phrases that follow a number, such as "processes left out: too many".
    """
    if not counts:
        return
    known = _read(raw)
    mine = known.setdefault(stream, {})
    for sentence, count in counts.items():
        mine[sentence] = mine.get(sentence, 0) + count
    write_whole(raw / FILE, encoded(known))


def gaps(raw: Path, start_ns: int, end_ns: int | None) -> list[Gap]:
    """Returns a gap for each stream and phrase, as long as the recording."""
    try:
        known = _read(raw)
    except (OSError, ValueError):
        return [Gap("list", _NO_CPU, start_ns, end_ns, None, f"{FILE} is damaged")]
    return [gap for stream in known for gap in of(stream, known[stream], start_ns, end_ns)]


def of(stream: str, counts: Mapping[str, int], start_ns: int, end_ns: int | None) -> list[Gap]:
    """Returns a gap for each phrase about a stream, as long as the recording."""
    return [
        Gap(stream, _NO_CPU, start_ns, end_ns, None, f"{count} {sentence}")
        for sentence, count in counts.items()
    ]


def _read(raw: Path) -> _Facts:
    try:
        found: _Facts = read_json(raw / FILE, _Facts, _MOST_BYTES)
    except FileNotFoundError:
        return {}
    return found
