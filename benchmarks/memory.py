"""Predicted reads with another amount of memory, beside those of real runs with that memory.

    sudo python benchmarks/memory.py --json [--mib N] [--epochs N] [--work DIR] [--only WORD]

A job reads a data set of N MiB for some epochs, in order or shuffled, alone or beside a second job
with a data set of its own. One recording without limits gives the predictions. Then each job runs
with each limit, and its device counts the sectors that it reads. A job alone also runs with other
sizes of the device's read-ahead; it then also reads a quarter of each file, in pieces (`sparse`).

Two jobs have limits of their own (`apart`), or one limit for both: in cgroups of their own below
the limited one, as containers of a pod (`pod`), or as processes of one cgroup (`cgroup`). With one
limit, the jobs also run `paced`: they sleep after each file, as a training computes; and `uneven`:
the second job reads a quarter of its files, in four times as many epochs. Each of these runs is
recorded, too: `own_error`, `own_least_bytes`, `own_most_bytes`, ... are those of the model with the
order of accesses of the run itself.

Prints each run when it is done (with --json on stderr), and one JSON object: `runs`, a list with
`order`, `jobs` (alone, apart, pod, cgroup), `uneven`, `paced`, `tenant` (null: both), `share` (of
the data for which the limit has room), `read_ahead_kb`, `limit_bytes`, `measured_bytes`,
`predicted_bytes` by model, `error` (of the kernel's model, of 1), `by_clock_bytes` (of this model,
by the clock of its statistics), `least_bytes` and `most_bytes` of them, `in_range`: the measured
bytes lie between 10 % below the least and 10 % above the most; `worst_error`; `rows`, the number of
rows, and `in_range`, of those in range; `dropped`, the runs that could not be measured, with the
reason. `lru_pages_per_s`: the speed of the pass over all capacities, and `lru_max_rss_bytes` of 100
million accesses. Needs root, cgroups for memory, and 4 N MiB in DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parts.readers import Case, Group, Tenant, drop, go

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_SHARES = (0.3, 0.5, 0.7, 0.9, 1.2)
_READ_AHEAD_KB = (0, 128, 1024, 4096)
_READ_AHEAD_SHARES = (0.5, 1.2)
_WIDER = 0.1
"""Share by which a range is widened, for errors that are not those of the clock."""

_SPEED = """
import json, resource, sys, time
import numpy as np
from tracer.analysis.memory.lru import lru_misses
from tracer.analysis.memory.page_runs import PageRuns
accesses, pages = int(sys.argv[1]), 1 << 20
draw = np.random.default_rng(5)
def runs(count):
    rows = count // 16
    first = draw.integers(0, pages // 16, rows) * 16
    zero = np.zeros(rows, np.int32)
    return PageRuns(
        first=first, pages=np.full(rows, 16, np.int32), file=zero, reader=zero, tenant=zero,
        kind=np.zeros(rows, np.int8), group=zero, base=np.zeros(1, np.int64),
        size_pages=np.full(1, pages),
    )
lru_misses(runs(1 << 16), [1 << 10])
given = runs(accesses)
begun = time.perf_counter()
lru_misses(given, np.linspace(0, pages, 1000).astype(np.int64))
took = time.perf_counter() - begun
print(json.dumps([accesses / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


_CASES = (
    Case("sequential"), Case("sequential", "apart"), Case("shuffled"), Case("shuffled", "apart"),
    Case("sparse"),
    *(
        Case(order, jobs, paced=paced)
        for paced in (False, True)
        for order in ("sequential", "shuffled")
        for jobs in ("pod", "cgroup")
    ),
    *(Case("shuffled", jobs, uneven=True, paced=True) for jobs in ("pod", "cgroup")),
)  # fmt: skip


class Bench:
    """Two tenants, the cgroup above theirs, and one for the processes of both.

    No other cgroup is below a limit: the kernel would take an empty one in turn with the others.
    """

    def __init__(self, folder: Path, mib: int, epochs: int, stack: contextlib.ExitStack) -> None:
        """Makes all of it; `stack` removes it."""
        name = f"tracer-memory-{os.getpid()}"
        self.folder, self.mib, self.epochs = folder, mib, epochs
        self.pod = Group(name, stack, parent=True)
        self.tenants = [Tenant(folder, number, mib, name, stack) for number in range(2)]
        # Removed first, with the jobs in it, which would keep the file systems busy.
        self.both = Group(f"{name}-both", stack)
        self._own = 0

    def _start(self, case: Case) -> list[subprocess.Popen[str]]:
        jobs = []
        for tenant, part in zip(self.tenants, case.parts(), strict=False):
            group = self.both if case.jobs == "cgroup" else tenant.group
            jobs.append(tenant.start(case, part, self.epochs, group))
        return jobs

    def _limit(self, case: Case, limit: int | None) -> None:
        own = [tenant.group for tenant in self.tenants]
        limited = {"pod": [self.pod], "cgroup": [self.both]}.get(case.jobs, own)
        for group in (self.pod, self.both, *own):
            group.limit(limit if group in limited else None)

    def _recorded(self, case: Case, limit: int | None) -> Path:
        """Records the jobs with a limit, or without any; returns the trace."""
        trace = self.folder / ("free.trace" if limit is None else "limited.trace")
        drop()
        self._limit(case, limit)
        jobs = self._start(case)
        if case.jobs == "cgroup":
            targets = ["-p", ",".join(str(job.pid) for job in jobs)]
        else:
            folders = [tenant.group.folder for tenant in self.tenants[: len(jobs)]]
            targets = [word for one in folders for word in ("--cgroup", str(one))]
        command = [*TRACER, "record", "-e", "default,page_cache", "-o", str(trace), *targets]
        recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert recorder.stderr is not None
            for line in recorder.stderr:
                if line.startswith("Tracing"):
                    break
            time.sleep(1)  # a sample of the jobs' memory before they read
            go(jobs)
        finally:
            # The recording does not end with its jobs; in the background SIGINT may be ignored.
            recorder.send_signal(signal.SIGTERM)
            recorder.communicate()
        if recorder.returncode not in (0, 143):
            raise OSError(f"tracer record ended with status {recorder.returncode}")
        return trace

    def measured(self, case: Case) -> Iterator[dict[str, Any]]:
        """Yields a row per tenant, limit and read-ahead, or the reason why there is none."""
        from tracer.analysis.memory.answer import answer_memory
        from tracer.store.trace import Trace

        trace_path = self._recorded(case, None)
        tenants = self.tenants[: len(case.parts())]
        usual = tenants[0].read_ahead_kb
        settings = [(share, usual) for share in _SHARES]
        if case.jobs == "alone":
            settings += [(share, kb) for share in _READ_AHEAD_SHARES for kb in _READ_AHEAD_KB]
        data = (self.mib << 20) * (sum(1 / n for n in case.parts()) if case.shared else 1)
        with Trace(trace_path) as trace:
            names = [target["name"] for target in trace.manifest["targets"]]
            told = [bytes_ or 0 for bytes_ in answer_memory(trace, [1 << 30]).own_bytes.values()]
            if any(told):
                self._own = max(told)
            # The samples do not tell the own memory of a process.
            own = self._own if case.jobs == "cgroup" else None
            most = self._own * (len(tenants) if case.shared else 1)
            if case.jobs == "pod":
                most = sum(told)
            lost = trace.manifest["loss"]["events"]
            answers = {}
            for kb in dict.fromkeys(kb for _, kb in settings):
                limits = [int(share * data) + most for share, its in settings if its == kb]
                answers[kb] = answer_memory(trace, limits, own, kb << 10, case.shared)
        shutil.rmtree(trace_path)
        for share, kb in settings:
            limit = int(share * data) + most
            for tenant in tenants:
                tenant.read_ahead_kb = kb
            own_answer = None
            before = [tenant.sectors for tenant in tenants]
            about = {**asdict(case), "share": share, "read_ahead_kb": kb, "limit_bytes": limit}
            try:
                if case.shared:
                    path = self._recorded(case, limit)
                    with Trace(path) as trace:
                        own_names = [target["name"] for target in trace.manifest["targets"]]
                        own_answer = answer_memory(trace, [limit], own, kb << 10, True)
                    shutil.rmtree(path)
                else:
                    drop()
                    self._limit(case, limit)
                    go(self._start(case))
            except OSError as error:
                yield {"dropped": str(error), **about}
                continue
            finally:
                for tenant in tenants:
                    tenant.read_ahead_kb = usual
            measured = [
                (tenant.sectors - sectors) * 512
                for tenant, sectors in zip(tenants, before, strict=True)
            ]
            parts: list[tuple[int | None, list[int]]] = [(n, [n]) for n in range(len(tenants))]
            if case.shared:
                parts.append((None, list(range(len(tenants)))))
            for number, summed in parts:
                read = sum(measured[n] for n in summed)
                predicted, ranged = _predicted(answers[kb], [names[n] for n in summed], limit, read)
                row = {
                    **about, "tenant": number, "measured_bytes": read,
                    "predicted_bytes": predicted, **ranged,
                    "error": predicted["kernel"] / read - 1, "lost_events": lost,
                }  # fmt: skip
                if own_answer is not None:
                    again, ranged = _predicted(
                        own_answer, [own_names[n] for n in summed], limit, read
                    )
                    row["own_error"] = again["kernel"] / read - 1
                    row |= {f"own_{key}": value for key, value in ranged.items()}
                yield row


def _predicted(
    answer: Any, names: list[str], limit: int, measured: int
) -> tuple[dict[str, int], dict[str, Any]]:
    """Returns the bytes that tenants would read with a limit by model, and the kernel's range."""
    from tracer.analysis.memory.answer import BOUNDS, KERNEL
    from tracer.analysis.memory.clocks import summed

    reads = answer.reads
    mine = reads[reads["target"].isin(names) & (reads["memory_bytes"] == limit)]
    columns = {"kernel": KERNEL, **{bound: bound for bound in BOUNDS}}
    found = {
        model: int(mine[f"{column}_pages"].sum()) * answer.page_bytes
        for model, column in columns.items()
    }
    by_clock = (summed(mine) * answer.page_bytes).tolist()
    least, most = min(by_clock), max(by_clock)
    return found, {
        "by_clock_bytes": by_clock,
        "least_bytes": least,
        "most_bytes": most,
        "in_range": (1 - _WIDER) * least <= measured <= (1 + _WIDER) * most,
    }


def main() -> None:
    """Records, predicts and runs, for each order and number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--mib", type=int, default=128, help="size of a data set")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accesses", type=int, default=100_000_000, help="of the speed's pass")
    parser.add_argument("--work", type=Path, help="folder for the file systems and traces")
    parser.add_argument("--only", help="cases with all of these words, as paced,pod")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file systems are removed
    runs: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as name, contextlib.ExitStack() as stack:
        bench = Bench(Path(name), options.mib, options.epochs, stack)
        for case in _CASES:
            if options.only and not case.words.issuperset(options.only.split(",")):
                continue
            for row in bench.measured(case):
                (dropped if "dropped" in row else runs).append(row)
                print(row, flush=True, file=sys.stderr if options.json else sys.stdout)
    speed = subprocess.check_output([sys.executable, "-c", _SPEED, str(options.accesses)])
    per_s, rss = json.loads(speed)
    result = {
        "runs": runs,
        "dropped": dropped,
        "rows": len(runs),
        "in_range": sum(row["in_range"] for row in runs),
        "worst_error": max((abs(row["error"]) for row in runs), default=None),
        "worst_own_error": max((abs(row.get("own_error", 0)) for row in runs), default=None),
        "lru_pages_per_s": per_s,
        "lru_max_rss_bytes": rss,
    }
    said = (
        f"worst error {result['worst_error']}; {result['in_range']} of {len(runs)} measured values"
        f" lie in the range from least to most, widened by {_WIDER:.0%}"
    )
    print(json.dumps(result) if options.json else said)


if __name__ == "__main__":
    main()
