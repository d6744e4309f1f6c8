"""What a second worker saves: many traces by one local worker of Dask, and by two.

    python benchmarks/scale.py --json [--traces N] [--events N] [--rounds N] [--work DIR]

Prints one JSON object: `speedup`, the median over the rounds of the time that one worker takes for
the report of all traces over that of two, in the same round (which of them comes first alternates);
`speedups`, those of the rounds; `one_s` and `two_s`, the medians; `equal`, whether both give the
tables that this process alone gives, to the last digit; `here_s`, what this process takes alone,
with both CPUs; `start_s`, starting two workers, which is not in the other times: both kinds of
workers are there before the first round, and have read a trace each. Traces are generated
(`parts/generate.py`), each of `events` rows with a seed of its own, on two CPUs.
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

from analysis.report.gathered import gather
from analysis.report.together import Together, together
from analysis.scale.mapping import connected, map_traces, results
from analysis.scale.sources import Source, find

if TYPE_CHECKING:
    from distributed import Client

_CPUS = 2


def measure(folder: Path, traces: int, events: int, rounds: int) -> dict[str, Any]:
    """The figures, of traces that are made in `folder`."""
    for number in range(traces):
        generate(folder / f"{number}.trace", events, seed=number)
    os.sync()  # so that it is not written while workers read
    sources = find([str(folder)])
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
    """Every worker has read a trace: its packages are imported, its loops loaded."""
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
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--traces", type=int, default=8, help="how many")
    parser.add_argument("--events", type=int, default=5_000_000, help="rows of each")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs")
    parser.add_argument("--work", type=Path, help="folder for the traces, meanwhile")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CPUS])
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        found = measure(Path(folder), options.traces, options.events, options.rounds)
    print(json.dumps(found) if options.json else "\n".join(f"{k} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
