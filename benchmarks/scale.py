"""Speed-up by a second worker: a report of many traces with one local Dask worker, and with two.

    python benchmarks/scale.py --json [--traces N] [--events N] [--rounds N] [--work DIR]

Prints one JSON object: `speedup`, the median over the rounds of one worker's time for the report
of all traces over the time of two workers in the same round (their order alternates); `speedups`,
the ratio of each round; `one_s` and `two_s`, the median times; `equal`, whether both give exactly
the tables of this process alone; `here_s`, the time of this process alone, with both CPUs;
`start_s`, the time to start two workers, which the other times exclude: all workers run before the
first round, and have read a trace each. Traces are generated (`parts/generate.py`), each of
`events` rows with its own seed, on two CPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parts.generate import generate

from tracer.analysis.report.gathered import gather
from tracer.analysis.report.together import Together, together
from tracer.analysis.scale.mapping import connected, map_traces, results
from tracer.analysis.scale.sources import Source, find_traces

if TYPE_CHECKING:
    from distributed import Client

_CPUS = 2


def measure(folder: Path, traces: int, events: int, rounds: int) -> dict[str, Any]:
    """Makes traces in `folder`; returns the results."""
    for number in range(traces):
        generate(folder / f"{number}.trace", events, seed=number)
    os.sync()  # so that write-back does not run while workers read
    sources = find_traces([str(folder)])
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(connected("local:1"))
        begun = time.perf_counter()
        two = stack.enter_context(connected("local:2"))
        start_s = time.perf_counter() - begun
        for client in (one, two):
            _warm(client, sources)
        took: dict[int, list[float]] = {1: [], 2: []}
        found = {}
        for number in range(rounds):
            pair = ((1, one), (2, two))
            for workers, client in pair if number % 2 == 0 else reversed(pair):
                begun = time.perf_counter()
                found[workers] = _report(sources, client)
                took[workers].append(time.perf_counter() - begun)
    begun = time.perf_counter()
    here = _report(sources, None)
    here_s = time.perf_counter() - begun
    speedups = [a / b for a, b in zip(took[1], took[2], strict=True)]
    return {
        "traces": traces,
        "events": events,
        "speedup": statistics.median(speedups),
        "speedups": speedups,
        "one_s": statistics.median(took[1]),
        "two_s": statistics.median(took[2]),
        "equal": all(_equal(here, other) for other in found.values()),
        "here_s": here_s,
        "start_s": start_s,
    }


def _warm(client: Client, sources: Sequence[Source]) -> None:
    """Makes every worker read a trace, so that packages are imported and loops are loaded."""
    workers = len(client.scheduler_info()["workers"])
    map_traces(gather, [sources[0]] * (2 * workers), client)


def _report(sources: Sequence[Source], client: Client | None) -> Together:
    each = results(gather, sources, client)
    return together(zip([source.name for source in sources], each, strict=True))


def _equal(one: Together, other: Together) -> bool:
    return one.tables.keys() == other.tables.keys() and all(
        table.equals(other.tables[name]) for name, table in one.tables.items()
    )


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traces", type=int, default=8, help="number of traces")
    parser.add_argument("--events", type=int, default=5_000_000, help="rows of each trace")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs")
    parser.add_argument("--work", type=Path, help="folder for the temporary traces")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CPUS])
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        found = measure(Path(folder), options.traces, options.events, options.rounds)
    print(json.dumps(found) if options.json else "\n".join(f"{k} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
