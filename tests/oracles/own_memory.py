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
    """Samples at these times: own memory up to `most` pages, which grows and shrinks again."""
    rows = []
    for ts in times:
        own = draw.choice([0, most // 4, most, draw.randrange(most + 1)]) * PAGE
        rows += memory_rows(target, ts, own, draw.randrange(99) * PAGE, draw.choice([0, own // 2]))
    return rows


def samples_of(rows: Iterable[Row], target: str) -> Samples:
    """The own memory that the samples of a target tell, with that of targets below it."""
    found: Samples = {}
    for row in sorted(rows, key=lambda row: row["ts"]):
        if row["target"] == target and row["name"] in SIGNS:
            found.setdefault(row["ts"], 0)
            found[row["ts"]] += SIGNS[row["name"]] * int(row["value"])
    return found


def without(samples: Samples, below: Samples) -> Samples:
    """Samples less those, at the nearest times, of the target in the next cgroup below.

    Those have the memory of targets below that one, too.
    """
    return {
        ts: max(0, own - below[min(below, key=lambda time: abs(time - ts))])
        for ts, own in samples.items()
    }


def with_end(samples: Samples, last: int) -> Samples:
    """Samples, and their end if others of the recording go on until `last`."""
    times = list(samples)
    longest = max((after - before for before, after in pairwise(times)), default=None)
    if longest is not None and last - times[-1] > 2 * longest:
        return samples | {times[-1] + longest: 0}
    return samples


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
        below = [with_end(samples, last) for samples, limit in targets if limit == number]
        for ts in sorted({0, *(ts for samples in below for ts in samples)}):
            total = sum(own_at(samples, ts) for samples in below)
            found.append(Own(ts, number, -(-total // PAGE)))
    return sorted(found, key=lambda one: one.ts)
