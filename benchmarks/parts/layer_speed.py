"""Measures one part of the flush layer's speed in its own process, and prints a JSON object.

Arguments: PART FILE. FILE has the page ids, saved by numpy. benchmarks/flushlayer.py describes the
parts.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 5
_SHARES = (1 / 64, 1 / 4, 3 / 4)
_REFERENCE_WRITES = 2_000_000  # 48 MB in libCacheSim's format
_POLICIES = ("lru", "fifo", "clock", "arc", "sieve", "s3-fifo")
_CAPACITIES = 64
_MEDIA_NS = (100, 350, 500, 1_000, 5_000, 20_000, 100_000, 500_000)
_DISK_NS = 8_000_000

_ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


def _timed(run: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    begun = time.perf_counter()
    made = run(*given)
    return time.perf_counter() - begun, made


def _stream(file: Path) -> tuple[NDArray[np.int32], int]:
    page: NDArray[np.int32] = np.load(file)
    return page, int(page.max()) + 1


def _against_libcachesim(file: Path) -> dict[str, float]:
    import libcachesim
    from libcachesim import TraceReader, TraceType

    from tracer.analysis.flushlayer.policies import simulate

    page = _stream(file)[0][:_REFERENCE_WRITES]
    unique = int(page.max()) + 1
    rows = np.zeros(len(page), _ORACLE_GENERAL)
    rows["id"], rows["size"], rows["next"] = page.astype(np.uint64) + 1, 1, -1
    trace = file.with_name("stream.oracleGeneral.bin")
    rows.tofile(trace)
    del rows
    power = unique.bit_length()  # one bucket per page: its best case
    simulate("lru", page[:1000], unique, 10)
    least: tuple[float, float, float] | None = None
    for share in _SHARES:
        capacity = max(1, int(unique * share))
        ours, theirs = [], []
        for _ in range(_ROUNDS):
            cache = libcachesim.LRU(cache_size=capacity, hashpower=power)
            reader = TraceReader(str(trace), TraceType.ORACLE_GENERAL_TRACE)
            spent, (missed, _) = _timed(cache.process_trace, reader)
            theirs.append(spent)
            spent, counts = _timed(simulate, "lru", page, unique, capacity)
            ours.append(spent)
            if counts.misses != round(missed * len(page)):
                raise SystemExit(f"misses differ: {counts.misses} and {missed * len(page)}")
        ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
        if least is None or ratio < least[0]:
            least = ratio, len(page) / min(ours), len(page) / min(theirs)
    assert least is not None
    return {
        "lru_ratio_to_libcachesim": round(least[0], 2),
        "lru_requests_per_s": round(least[1]),
        "libcachesim_requests_per_s": round(least[2]),
    }


def _one_core(file: Path) -> dict[str, Any]:
    from tracer.analysis.flushlayer.curves.stack_distances import lru_counts
    from tracer.analysis.flushlayer.policies import POLICIES, simulate

    page, unique = _stream(file)
    lru_counts(page[:1000], unique)
    passes = {}
    for policy in POLICIES:
        simulate(policy, page[:1000], unique, 10)
        spent, _ = _timed(simulate, policy, page, unique, unique // 4)
        passes[policy] = round(len(page) / spent)
    spent = min(_timed(lru_counts, page, unique)[0] for _ in range(_ROUNDS))
    return {"curve_requests_per_s": round(len(page) / spent), "policy_requests_per_s": passes}


def _sweep(file: Path) -> dict[str, Any]:
    from tracer.analysis.flushlayer.curves.every_capacity import curve, improvements, spread

    page, unique = _stream(file)
    capacities = spread(unique, _CAPACITIES).tolist()
    for policy in _POLICIES:
        curve(policy, page[:1000], unique, capacities[:2])
    by_policy = {}
    rows = 0
    begun = time.perf_counter()
    for policy in _POLICIES:
        started = time.perf_counter()
        pages = curve(policy, page, unique, capacities)
        for medium_ns in _MEDIA_NS:
            rows += len(improvements(pages, medium_ns, _DISK_NS))
        by_policy[policy] = round(time.perf_counter() - started, 2)
    spent = time.perf_counter() - begun
    return {
        "sweep_s": round(spent, 2),
        "sweep_points": rows,
        "sweep_s_by_policy": by_policy,
        "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


_PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "libcachesim": _against_libcachesim,
    "one_core": _one_core,
    "sweep": _sweep,
}

if __name__ == "__main__":
    print(json.dumps(_PARTS[sys.argv[1]](Path(sys.argv[2]))))
