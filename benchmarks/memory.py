"""Predicted reads with another amount of memory, beside those of real runs with that memory.

    sudo python benchmarks/memory.py --json [--mib N] [--epochs N] [--work DIR]

A job reads a data set of N MiB for some epochs, in order or shuffled, alone or beside a second job
with a data set and a memory limit of its own. One recording without limits gives the predictions.
Then each job runs with each limit, and its device counts the sectors that it reads. A job alone
also runs with other sizes of the device's read-ahead; it then also reads a quarter of each file, in
pieces (`sparse`).

Prints each run when it is done (with --json on stderr), and one JSON object: `runs`, a list with
`order`, `tenants`, `tenant`, `share` (of the data set for which the limit has room),
`read_ahead_kb`, `limit_bytes`, `measured_bytes`, `predicted_bytes` by model, and `error` (of the
kernel's model, of 1); `worst_error`; `dropped`, the runs that could not be measured, with the
reason. `lru_pages_per_s`: the speed of the pass over all capacities, and `lru_max_rss_bytes` of 100
million accesses. Needs root, cgroups for memory, and 4 N MiB in DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracer.workloads.modes import cgroups

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_PAGE = 4096
_MOST_BYTES = (1 << 63) - _PAGE
"""A limit that is none: the most that the kernel can count."""
_FILES = 64
_SHARES = (0.3, 0.5, 0.7, 0.9, 1.2)
_READ_AHEAD_KB = (0, 128, 1024, 4096)
_READ_AHEAD_SHARES = (0.5, 1.2)

_JOB = """
import os, random, sys
folder, epochs, order = sys.argv[1], int(sys.argv[2]), sys.argv[3]
names = sorted(os.listdir(folder), key=lambda name: int(name) if name.isdigit() else -1)
names = [name for name in names if name.isdigit()]
draw = random.Random(7)
print("ready", flush=True)
sys.stdin.readline()
for epoch in range(epochs):
    if order == "shuffled":
        draw.shuffle(names)
    for name in names:
        file = os.open(f"{folder}/{name}", os.O_RDONLY)
        if order == "sparse":
            for at in range(0, os.fstat(file).st_size, 262144):
                os.pread(file, 65536, at)
        else:
            while os.read(file, 65536):
                pass
        os.close(file)
"""
"""Reads each file of a folder, or a quarter of it, once an epoch."""

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


class Tenant:
    """A job's data set on a device of its own, and a memory cgroup."""

    def __init__(self, folder: Path, number: int, mib: int, stack: contextlib.ExitStack) -> None:
        """Makes the file system, the files and the cgroup; `stack` removes them."""
        self.name = f"tracer-memory-{os.getpid()}-{number}"
        image = folder / f"{self.name}.img"
        with image.open("wb") as file:
            file.truncate((mib + mib // 8 + 64) << 20)
        _ran("mkfs.ext4", "-q", "-F", image)
        self.device = _ran("losetup", "--find", "--show", image)
        stack.callback(_ran, "losetup", "-d", self.device)
        self.mount = folder / f"mount-{number}"
        self.mount.mkdir()
        _ran("mount", "-o", "noatime", self.device, self.mount)
        stack.callback(_ran, "umount", self.mount)
        for number in range(_FILES):
            (self.mount / str(number)).write_bytes(os.urandom((mib << 20) // _FILES))
        _ran("sync", "-f", self.mount)
        planned = cgroups.plan(cgroups.Share(), self.name, memory=cgroups.Memory(_MOST_BYTES))
        (self.cgroup,) = cgroups.make(planned)
        stack.callback(cgroups.remove, planned)

    def limit(self, limit: int | None) -> None:
        """Sets the memory limit in bytes; None: none."""
        for name, none in (("memory.limit_in_bytes", "-1"), ("memory.max", "max")):
            if (self.cgroup / name).exists():
                (self.cgroup / name).write_text(none if limit is None else str(limit))

    @property
    def read_ahead_kb(self) -> int:
        """The read-ahead of the device in KiB."""
        return int(self._read_ahead.read_text())

    @read_ahead_kb.setter
    def read_ahead_kb(self, kib: int) -> None:
        self._read_ahead.write_text(str(kib))

    @property
    def _read_ahead(self) -> Path:
        return Path("/sys/class/block", Path(self.device).name, "queue/read_ahead_kb")

    @property
    def sectors(self) -> int:
        """Sectors read of the device so far."""
        return int(Path("/sys/class/block", Path(self.device).name, "stat").read_text().split()[2])

    def start(self, epochs: int, order: str) -> subprocess.Popen[str]:
        """Starts the job in the cgroup; it waits for a line before it reads."""
        enter = f"import os\nopen('{self.cgroup}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        job = subprocess.Popen(
            [sys.executable, "-S", "-c", enter + _JOB, self.mount, str(epochs), order],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert job.stdout is not None
        job.stdout.readline()
        return job


def _go(jobs: list[subprocess.Popen[str]]) -> None:
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
    for job in jobs:
        if job.wait():
            raise OSError(f"a job ended with status {job.returncode}")


def _ran(*command: object) -> str:
    ended = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return ended.stdout.strip()


def _drop() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _recorded(folder: Path, tenants: list[Tenant], epochs: int, order: str) -> Path:
    """Records the jobs without limits; returns the trace."""
    trace = folder / f"{order}-{len(tenants)}.trace"
    _drop()
    jobs = []
    for tenant in tenants:
        tenant.limit(None)
        jobs.append(tenant.start(epochs, order))
    targets = [word for tenant in tenants for word in ("--cgroup", str(tenant.cgroup))]
    command = [*TRACER, "record", "-e", "default,page_cache", "-o", str(trace), *targets]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert recorder.stderr is not None
    for line in recorder.stderr:
        if line.startswith("Tracing"):
            break
    time.sleep(1)  # a sample of the jobs' memory before they read
    try:
        _go(jobs)
    finally:
        # The recording does not end with its jobs; in the background SIGINT may be ignored.
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate()
    if recorder.returncode not in (0, 143):
        raise OSError(f"tracer record ended with status {recorder.returncode}")
    return trace


def _measured(
    folder: Path, tenants: list[Tenant], epochs: int, order: str, mib: int
) -> Iterator[dict[str, Any]]:
    """Yields a row per tenant, limit and read-ahead, or the reason for which there is none."""
    from tracer.analysis.memory.answer import answer_memory
    from tracer.store.trace import Trace

    trace_path = _recorded(folder, tenants, epochs, order)
    usual = tenants[0].read_ahead_kb
    settings = [(share, usual) for share in _SHARES]
    if len(tenants) == 1:
        settings += [(share, kb) for share in _READ_AHEAD_SHARES for kb in _READ_AHEAD_KB]
    with Trace(trace_path) as trace:
        own = answer_memory(trace, [1 << 30]).own_bytes.values()
        most = max(bytes_ or 0 for bytes_ in own)
        lost = trace.manifest["loss"]["events"]
        answers = {}
        for kb in dict.fromkeys(kb for _, kb in settings):
            limits = [int(share * (mib << 20)) + most for share, its in settings if its == kb]
            answers[kb] = answer_memory(trace, limits, read_ahead=kb << 10)
    for share, kb in settings:
        limit = int(share * (mib << 20)) + most
        _drop()
        for tenant in tenants:
            tenant.limit(limit)
            tenant.read_ahead_kb = kb
        jobs = [tenant.start(epochs, order) for tenant in tenants]
        before = [tenant.sectors for tenant in tenants]
        about = {"order": order, "tenants": len(tenants), "share": share, "read_ahead_kb": kb}
        try:
            _go(jobs)
        except OSError as error:
            yield {"dropped": str(error), **about}
            continue
        finally:
            for tenant in tenants:
                tenant.read_ahead_kb = usual
        for number, (tenant, sectors) in enumerate(zip(tenants, before, strict=True)):
            measured = (tenant.sectors - sectors) * 512
            predicted = _predicted(answers[kb], tenant.name, limit)
            yield {
                **about, "tenant": number, "limit_bytes": limit, "measured_bytes": measured,
                "predicted_bytes": predicted, "error": predicted["kernel"] / measured - 1,
                "lost_events": lost,
            }  # fmt: skip


def _predicted(answer: Any, name: str, limit: int) -> dict[str, int]:
    """Returns the bytes that a tenant would read with a limit, by model."""
    from tracer.analysis.memory.answer import BOUNDS, KERNEL

    reads = answer.reads
    mine = reads[reads["target"].str.contains(name) & (reads["memory_bytes"] == limit)]
    columns = {"kernel": KERNEL, **{bound: bound for bound in BOUNDS}}
    return {
        model: int(mine[f"{column}_pages"].sum()) * answer.page_bytes
        for model, column in columns.items()
    }


def main() -> None:
    """Records, predicts and runs, for each order and number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--mib", type=int, default=128, help="size of a data set")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--accesses", type=int, default=100_000_000, help="of the speed's pass")
    parser.add_argument("--work", type=Path, help="folder for the file systems and traces")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file systems are removed
    runs: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.work) as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        tenants = [Tenant(folder, number, options.mib, stack) for number in range(2)]
        for order, counts in (("sequential", (1, 2)), ("shuffled", (1, 2)), ("sparse", (1,))):
            for count in counts:
                for row in _measured(folder, tenants[:count], options.epochs, order, options.mib):
                    (dropped if "dropped" in row else runs).append(row)
                    print(row, flush=True, file=sys.stderr if options.json else sys.stdout)
    speed = subprocess.check_output([sys.executable, "-c", _SPEED, str(options.accesses)])
    per_s, rss = json.loads(speed)
    result = {
        "runs": runs,
        "dropped": dropped,
        "worst_error": max((abs(row["error"]) for row in runs), default=None),
        "lru_pages_per_s": per_s,
        "lru_max_rss_bytes": rss,
    }
    print(json.dumps(result) if options.json else f"worst error {result['worst_error']}")


if __name__ == "__main__":
    main()
