"""Own memory of targets over time, drawn at random, and worked out naively from their samples.

It is written from docs/predict.md (Amounts of memory, Own memory over time), not from the code of
`tracer predict`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tests.oracles.nested_cgroups import PAGE, Row
from tests.oracles.two_lists import Own

Samples = dict[int, int]
"""Own memory in bytes by time, in the order of time."""
SECOND = 1_000_000_000
NEAR_NS = 30 * SECOND
"""A sample counts with the size of the largest one that is at most so far away."""
SIGNS = {"cgroup_memory": 1, "cgroup_page_cache": -1, "cgroup_shmem": 1}
"""The parts of own memory."""


def memory_rows(
    target: str, ts: int, own: int, cached: int = 0, shared: int | None = None
) -> list[Row]:
    """Samples of a target's cgroup. The own memory is `own` bytes, `shared` of them in tmpfs.

    `cached`: bytes of files in the page cache. Without `shared`, the samples are of an older
    tracer, which did not tell it.
    """
    values = own + cached, cached + (shared or 0), shared
    row = {"ts": ts, "target": target, "unit": "bytes"}
    return [
        row | {"name": name, "value": float(value)}
        for name, value in zip(SIGNS, values, strict=True)
        if value is not None
    ]


def drawn_rows(draw: random.Random, target: str, times: Iterable[int], most: int) -> list[Row]:
    """Samples at these times: own memory up to `most` pages, which grows and shrinks again.

    Some samples, but not the first one, have more page cache than memory.
    """
    rows = []
    for ts in times:
        own = draw.choice([0, most // 4, most, draw.randrange(most + 1)]) * PAGE
        cached, shared = draw.randrange(99) * PAGE, draw.choice([0, own // 2])
        wrong = bool(rows) and cached and draw.random() < 0.1
        rows += memory_rows(
            target, ts, -draw.randrange(1, cached) if wrong else own, cached, shared
        )
    return rows


def drawn_times(draw: random.Random, calls: Sequence[int], end: float = 1.0) -> list[int]:
    """Draws times of samples in a part of the time of calls.

    Some of them are those of calls, some half a minute after others. Most begin late or end early.
    """
    last = max(calls)
    times = draw.sample(calls, 4) + [draw.randrange(last + SECOND) for _ in range(4)]
    times += [
        ts + NEAR_NS + more for ts, more in zip(draw.sample(times, 3), (-1, 0, 1), strict=True)
    ]
    begin, stop = sorted(draw.choices(range(12), k=2))
    drawn = sorted(times)[begin:stop] or times[:1]
    return [ts for ts in drawn if ts < end * last] or drawn[:1]


def samples_of(rows: Iterable[Row], target: str) -> Samples:
    """The own memory that the samples of a target tell, with that of targets below it.

    Samples with more page cache than memory are left out.
    """
    told: dict[int, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: row["ts"]):
        if row["target"] == target and row["name"] in SIGNS:
            told.setdefault(row["ts"], {})[row["name"]] = int(row["value"])
    return {
        ts: sum(SIGNS[name] * value for name, value in values.items())
        for ts, values in told.items()
        if values["cgroup_page_cache"] <= values["cgroup_memory"]
    }


def without(samples: Samples, last: int, *inner: Samples) -> Samples:
    """Samples less those, at the nearest times, of the targets in the next cgroups below.

    Of two equally near ones, the earlier counts. Those have the memory of targets below them, too.
    `last`: time of the last sample of the recording.
    """
    found = dict(samples)
    for below in inner:
        end = end_of(below, last)
        for ts in found:
            if end is None or ts < end:
                found[ts] -= below[min(below, key=lambda time: (abs(time - ts), time))]
    return {ts: max(0, own) for ts, own in found.items()}


def end_of(samples: Samples, last: int) -> int | None:
    """The time at which samples end if others of the recording go on until `last`."""
    times = list(samples)
    longest = max((after - before for before, after in pairwise(times)), default=None)
    if longest is None or last - times[-1] <= 2 * longest:
        return None
    return times[-1] + longest


def counted(samples: Samples, last: int) -> Samples:
    """The size with which each sample counts, and 0 at the end of the samples, if they end."""
    found = {
        ts: max(own for other, own in samples.items() if abs(other - ts) <= NEAR_NS)
        for ts in samples
    }
    end = end_of(samples, last)
    return found if end is None else found | {end: 0}


def own_at(samples: Samples, ts: int) -> int:
    """The own memory at a time: the last sample until then, or the first one of all."""
    return samples[max((each for each in samples if each <= ts), default=min(samples))]


def changes(own: Mapping[str, Samples], last: int, limits: Sequence[int]) -> list[Own]:
    """Changes of the own memory below limits, in whole pages.

    `last`: time of the last sample of the recording. `limits`: the limit of each target.
    """
    found = []
    for number in set(limits):
        targets = zip(own.values(), limits, strict=True)
        below = [counted(samples, last) for samples, limit in targets if limit == number]
        for ts in sorted({0, *(ts for samples in below for ts in samples)}):
            total = sum(own_at(samples, ts) for samples in below)
            found.append(Own(ts, number, -(-total // PAGE)))
    return sorted(found, key=lambda one: one.ts)
