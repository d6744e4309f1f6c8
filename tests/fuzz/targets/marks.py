"""Marks that recorded processes leave: records, notes, names of containers' processes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random

from tests.fuzz.json_mutation import mutated_json_lines
from tests.fuzz.mutation import NUMBERS, mutated
from tests.fuzz.parts import joined, mutated_parts, parted
from tests.fuzz.target import target
from tests.fuzz.targets.rings import FIXTURES
from tests.support.phases import read_phases
from tracer.phases.format import ABSENT, AUTOMATIC, BEGIN, COMMITTED, END, MEASURED, RECORD, STOPPED
from tracer.store import listed
from tracer.store.lists import MarkFacts
from tracer.store.marks import NAMES, read_notes

_NAMES = (
    b"train", b"epoch", b"step", b"fetch", b"forward", b"backward", b"optimizer", b"worker",
    b"data_load", b"checkpoint", b"eval", b"inference", b"zero_grad", b"iter", b"\xff\x1b", b"",
)  # fmt: skip
_KINDS = (BEGIN, END, BEGIN, END, MEASURED, STOPPED, 0, 7)


def _int64(value: int) -> int:
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def _record(chance: Random, ts: int, name: bytes, kind: int) -> bytes:
    usual = (ABSENT, ABSENT, ABSENT, 0, 1, 2)
    numbers = [_int64(chance.choice((*usual, chance.choice(NUMBERS)))) for _ in range(2)]
    pid = chance.choice((7, 7, 8, 1 << 30))
    committed = COMMITTED if chance.random() < 0.98 else chance.randrange(256)
    tid = chance.choice((pid, 9))
    return RECORD.pack(_int64(ts), pid, tid, *numbers, kind, name, committed)


def _records(chance: Random, data: bytes) -> bytes:
    if chance.random() < 0.4:
        return mutated(chance, data)
    out, at = b"", chance.choice((0, 1000))
    automatic = chance.choice((0, AUTOMATIC))
    for _ in range(chance.choice((3, 20, 60))):
        at += chance.choice((0, 1, 5, 1000))
        ts = at if chance.random() < 0.98 else chance.choice(NUMBERS)
        mark = chance.choice(_KINDS) | automatic
        out += _record(chance, ts, chance.choice(_NAMES), mark)
    return out


def _names(chance: Random) -> bytes:
    pids = [chance.choice((0, 7, 8, 100, chance.choice(NUMBERS))) for _ in range(4)]
    return json.dumps(["7-5", *pids[:2], [pids[2:]] * chance.choice((0, 1, 3))]).encode() + b"\n"


def _one(chance: Random, name: str, data: bytes) -> bytes:
    if name == NAMES:
        return _names(chance) if chance.random() < 0.5 else mutated_json_lines(chance, data)
    return _records(chance, data) if name.endswith(".marks") else mutated(chance, data)


def _mutate(chance: Random, data: bytes) -> bytes:
    return mutated_parts(chance, data, _one)


def _seeds() -> list[bytes]:
    chance = Random(23)
    real = sorted((FIXTURES / "lenet.trace" / "raw" / "marks").glob("*.marks"))
    names = b'["7-5", 7, 100, [[9, 101]]]\n'
    note = {"8-5.note": b"no torch\xff"}
    found = [joined({"7-5-0.marks": path.read_bytes()[: 64 * 80], NAMES: names}) for path in real]
    made = {f"{n}-5-0.marks": _records(chance, bytes(64)) for n in (7, 8)}
    return [*found, joined({**made, **note, NAMES: names}), joined({"7-5-0.marks": b"", **note})]


@target(_seeds, _mutate, tries=50)
def marks(data: bytes, folder: Path) -> None:
    """Files of marks, beside them notes and the names of containers' processes."""
    for name, content in parted(data).items():
        (folder / name).write_bytes(content)
    end_ns = struct.unpack("<q", data[:8].ljust(8, b"\0"))[0]
    names = listed.read(folder / NAMES, MarkFacts)
    for end in (None, end_ns):
        read_phases(folder, 500, end, names=names)
    read_notes(folder)
