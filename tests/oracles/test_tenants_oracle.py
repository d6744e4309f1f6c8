"""The findings `tenants` and `writers` and a naive sum agree on files drawn at random.

The truth is written from docs/findings.md: the journal's thread writes out files that two
containers dirtied, while they sync.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracles.drawing import answer_of, seeds
from tests.support.findings import (
    CONTAINERS,
    JBD2,
    OF_CONTAINERS,
    PROCESSES,
    A,
    B,
    S,
    call,
    chain,
    merged,
)
from tracer.analysis.findings.catalogue import findings

pytestmark = pytest.mark.slow

STREAMS = 10
SECOND = {**OF_CONTAINERS[0], "pid": A + 1, "tid": A + 1}
"""Another process of A."""
CONTAINER_OF = {A: "A", A + 1: "A", B: "B"}
CLOCK = {"name": "mono", "start_ns": 0, "end_ns": 200 * S}

Write = tuple[float, str, int]
"""The time in s at which the journal writes a file, the container that dirtied it, its pages."""


def share_of_other(waiter: str, writes: list[Write], syncs: list[tuple[str, int, int]]) -> float:
    """Returns the percentage that the other container dirtied of what one waits for."""
    mine = [(begin, end) for who, begin, end in syncs if who == waiter]
    during = [one for one in writes if any(begin <= one[0] < end for begin, end in mine)]
    others = sum(pages for _, who, pages in during if who != waiter)
    return 100 * others / sum(pages for *_, pages in during) if during else 0


def test_the_shares_of_tenants_and_writers_are_those_of_the_oracle():
    seen = 0
    for seed in seeds(STREAMS):
        numbers = Random(seed)
        writes: list[Write] = []
        parts: list[dict[str, Any]] = []
        calls, syncs = [], []
        for pid in (A, A + 1, B):
            begin, length = numbers.randrange(10, 150), numbers.randrange(1, 25)
            calls.append(call("fsync", begin, length, pid))
            syncs.append((CONTAINER_OF[pid], begin, begin + length))
        for file in range(numbers.randrange(3, 9)):
            pid, pages = numbers.choice([A, A + 1, B]), numbers.randrange(20, 90)
            at = numbers.randrange(11, 180) + 0.5 + file / 100
            parts.append(chain(JBD2, pid, 100 + file, at, 1000 * file, pages))
            writes.append((at, CONTAINER_OF[pid], pages))
        tables = merged(
            {"processes": [*OF_CONTAINERS, SECOND, *PROCESSES[2:]]}, {"syscalls": calls}, *parts
        )
        found = answer_of(findings, tables, targets=CONTAINERS, clock=CLOCK)
        value = {one.topic: one.value for one in found}
        tenants = max(share_of_other(one, writes, syncs) for one in "AB")
        assert value.get("tenants", 0) == pytest.approx(tenants)
        seen += tenants > 0
        written = sum(pages for *_, pages in writes)
        most = max(sum(pages for _, who, pages in writes if who == one) for one in "AB")
        assert value["writers"] == pytest.approx(100 * most / written)
    assert seen > 1
