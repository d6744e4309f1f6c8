"""The fetch stall of a training as its page cache holds more of the data: measured and predicted.

    sudo python benchmarks/fetch_stall.py --json [--samples N] [--order O] [--work DIR]

MobileNet trains for some epochs on JPEG files, without DataLoader workers, on a file system of its
own on a loop device that the kernel limits to a medium's speed. Each file has few pixels and is
padded to 4 MiB, so that the stall is due to reading, not to decoding. Each order of the samples
(shuffled, in-order) is recorded once without a memory limit. `tracer predict` tells from that
recording alone what each epoch reads with other limits. Then the training runs with each of these
limits, is recorded again, and the views of the trace give its fetch stall. The libraries are in
memory before each run, the data is not (`tracer predict --warm`).

Prints each run when it is done (with --json on stderr), and one JSON object: `runs`, a list with
`order`, `share` (of the data for which the limit has room; null: no limit), `limit_bytes`,
`others_share` (of the CPUs, used by processes beside the run), and `epochs`, a list with `epoch`,
`epoch_s`, `stall_s` (steps that wait for data), `compute_s`, `disk_s` (the part of the stall in
which the thread waits for the disk, by `waits`), `path_disk_s` (the same by `critical_path`),
`read_bytes` (pages of the data that come into the cache, by `reads`), `device_bytes` (that the disk
reads meanwhile), `predicted_bytes` by model, and `predicted_stall_s`: the stall of the recording's
later epochs, and the wait for each byte of its first one for the bytes of the kernel's model.
`dropped`: epochs whose computing took over 1.3 times its median, because other work ran on the
CPUs, and runs that failed, with the reason. `data_bytes`, `own_bytes`. Needs root and cgroups for
memory and for block devices.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tracer.workloads.modes import cgroups
from tracer.workloads.studies.media import find_medium
from tracer.workloads.studies.others import others_cpu
from tracer.workloads.studies.scratch import Scratch
from tracer.workloads.studies.throttle import Throttle, take_down

TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
_MOST_BYTES = (1 << 63) - 4096
"""A limit that is none: the most that the kernel can count."""
_SHARES = (0.25, 0.5, 0.75, 0.9, 1.1)
_ORDERS = ("shuffled", "in-order")
_NOISY = 1.3
_GROUP = Path("benchmarks", "fetch_stall.py")
"""Key of the group that limits the device. The next run removes what a killed one left of it."""
_FILE_BYTES = 4 << 20
_PROBES = "default,page_cache,sched"
_WAITED = """
SELECT w.epoch, sum(w.dur_ns) / 1e9 AS disk_s FROM waits w
WHERE w.kind IN ('disk', 'fault') AND w.phase = 'fetch' AND w.stage = 'train' GROUP BY ALL
"""
_PATH = """
SELECT epoch, sum(dur_ns) / 1e9 AS path_disk_s FROM critical_path
WHERE kind IN ('disk', 'fault') AND phase = 'fetch' AND stage = 'train' GROUP BY ALL
"""


class Training:
    """The job, its data on a device of its own, and its memory cgroup."""

    def __init__(self, folder: Path, options: argparse.Namespace, stack: Any) -> None:
        """Makes the file system, the data and the cgroup; `stack` removes them."""
        self.folder, self._epochs = folder, options.epochs
        self.medium = find_medium(options.medium)
        size = options.samples * _FILE_BYTES + (256 << 20)
        self.scratch = stack.enter_context(Scratch(folder, size, self.medium))
        self.data = self.scratch.mount / "data"
        self.data_bytes = options.samples * _FILE_BYTES
        _draw(self.data / "train", options.samples)
        _draw(self.data / "val", 4)
        os.sync()
        name = f"tracer-fetch-stall-{os.getpid()}"
        planned = cgroups.plan(cgroups.Share(), name, memory=cgroups.Memory(_MOST_BYTES))
        (self.cgroup,) = cgroups.make(planned)
        stack.callback(cgroups.remove, planned)
        stack.callback(take_down, _GROUP, [])  # the recorder may have left it a little later

    def limit(self, limit: int | None) -> None:
        """Sets the memory limit in bytes; None: none."""
        for name, none in (("memory.limit_in_bytes", "-1"), ("memory.max", "max")):
            if (self.cgroup / name).exists():
                (self.cgroup / name).write_text(none if limit is None else str(limit))

    def record(self, order: str, limit: int | None) -> tuple[Path, float]:
        """Records a run; returns the trace, and the share of the CPUs that others used."""
        trace = self.folder / "run.trace"
        self._warm()
        self.limit(limit)
        command = self._command(order, self.scratch.mount / "output")
        waiting = ["/bin/sh", "-c", 'read line; exec "$@"', "wait", *command]
        with (
            contextlib.ExitStack() as stack,
            others_cpu() as others,
        ):
            if self.medium.speed is not None:
                stack.enter_context(Throttle(self.scratch.device, self.medium.speed, _GROUP))
            began = os.times().elapsed
            marks = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder)))
            job = subprocess.Popen(
                cgroups.entering([self.cgroup], waiting),
                env={**os.environ, "TRACER_MARKS": str(marks)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            stack.callback(_end, job)
            recorder = subprocess.Popen(
                [*TRACER, "record", "-e", _PROBES, "-o", str(trace), "--force", "--sample-hz", "10",
                 "--cgroup", str(self.cgroup)],
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            stack.callback(_end, recorder)
            assert recorder.stderr is not None and job.stdin is not None
            for line in recorder.stderr:
                if line.startswith("Tracing"):
                    break
            _say(f"{order} with {limit or 'all'} bytes of memory")
            job.stdin.write(b"\n")
            job.stdin.close()
            status = job.wait()
            _say("ending the recording")
            recorder.send_signal(signal.SIGTERM)
            recorder.communicate()
            wall = os.times().elapsed - began
        if status or recorder.returncode not in (0, 143):
            raise OSError(f"the training ended with {status}, the recorder {recorder.returncode}")
        return trace, others["others_cpu_s"] / wall / (os.cpu_count() or 1)

    def _warm(self) -> None:
        """Empties the page cache, and brings in the libraries of the training by two of its steps.

        An import would bring in a part of them only: the rest is read when it is first used.
        """
        self.scratch.drop_caches()
        output = self.scratch.mount / "warm"
        warming = subprocess.run(
            [*self._command("in-order", output), "--steps", "2"],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if warming.returncode:
            raise OSError(f"the steps that bring in libraries ended with {warming.returncode}")
        os.sync()  # dirty pages would stay
        for path in self.data.glob("*/*/*.jpg"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _command(self, order: str, output: Path) -> list[str]:
        """Returns the command of a training of all epochs."""
        return [
            sys.executable, "-m", "tracer.workloads", "train", "mobilenet", "--data",
            str(self.data), "--workers", "0", "--threads", "1", "--batch-size", "4", "--epochs",
            str(self._epochs), "--output", str(output), "--checkpoint-every", "end",
            "--shuffle" if order == "shuffled" else "--in-order",
        ]  # fmt: skip


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process that still runs, since this benchmark is stopped."""
    if process.poll() is None:
        process.terminate()
        process.communicate()


def _draw(folder: Path, count: int) -> None:
    """Writes padded JPEG files of two classes."""
    random = np.random.default_rng(count)
    for number in range(count):
        pixels = random.integers(0, 256, (224, 224, 3), np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "JPEG")
        path = folder / str(number % 2) / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded.getvalue().ljust(_FILE_BYTES, b"\0"))


def _epochs(path: Path, dev: str) -> list[dict[str, Any]]:
    """Returns the epochs of a trace, by its views."""
    from tracer.analysis.report.epochs import epochs
    from tracer.analysis.views.reading.reads import reads
    from tracer.analysis.views.waiting.critical_path import critical_path
    from tracer.analysis.views.waiting.waits import waits
    from tracer.store.trace import Trace

    _say("making the views")
    with Trace(path) as trace:
        frame = epochs(trace, dev)
        waits(trace), critical_path(trace), reads(trace)
        frame = frame.rename(columns={"read_bytes": "device_bytes"})
        # Bytes of `disk_bytes` that the kernel holds back at a limit have no thread and no epoch.
        read = (
            "SELECT epoch, sum(read) * 4096 AS read_bytes FROM reads"
            f" WHERE dev = '{dev}' GROUP BY ALL"
        )
        for query in (_WAITED, _PATH, read):
            frame = frame.merge(trace.sql(query), "left", "epoch")
    wanted = ["epoch", "epoch_s", "stall_s", "compute_s", "disk_s", "path_disk_s"]
    rows: Any = frame[[*wanted, "read_bytes", "device_bytes"]].fillna(0).to_dict("records")
    return list(rows)


def _say(what: str) -> None:
    print(f"{time.strftime('%T')} {what}", file=sys.stderr, flush=True)


def _predicted(path: Path, limits: list[int]) -> tuple[Any, int]:
    """Returns the answer of `tracer predict`, and the memory of the job that is no page cache."""
    from tracer.analysis.memory.answer import answer_memory
    from tracer.store.trace import Trace

    _say("predicting")
    with Trace(path) as trace:
        (own,) = answer_memory(trace, [1 << 40]).own_bytes.values()
        if own is None:
            raise OSError("the samples do not tell the job's own memory")
        return answer_memory(trace, [limit + own for limit in limits], warm=True), own


def _of(answer: Any, limit: int, epoch: int) -> dict[str, int]:
    from tracer.analysis.memory.answer import BOUNDS, KERNEL

    rows = answer.reads
    row = rows[(rows["memory_bytes"] == limit) & (rows["epoch"] == epoch)]
    columns = {"kernel": KERNEL, **{bound: bound for bound in BOUNDS}}
    return {m: int(row[f"{c}_pages"].sum()) * answer.page_bytes for m, c in columns.items()}


def _measured(training: Training, order: str, shares: list[float]) -> Iterator[dict[str, Any]]:
    """Yields a row for the recording without a limit, and one for each limit."""
    dev = training.scratch.device
    trace, others = training.record(order, None)
    base = _epochs(trace, dev)
    sizes = [int(share * training.data_bytes) for share in shares]
    answer, own = _predicted(trace, sizes)
    shutil.rmtree(trace)
    yield {"order": order, "share": None, "limit_bytes": None, "others_share": others,
           "own_bytes": own, "epochs": base}  # fmt: skip
    if len(base) < 2 or not base[0]["read_bytes"]:
        raise OSError("the recording has no epochs that read data")
    later = statistics.mean(epoch["stall_s"] for epoch in base[1:])
    per_byte = (base[0]["stall_s"] - later) / base[0]["read_bytes"]
    for share, size in zip(shares, sizes, strict=True):
        about = {"order": order, "share": share, "limit_bytes": size + own}
        try:
            trace, others = training.record(order, size + own)
        except OSError as error:
            yield {**about, "dropped": str(error)}
            continue
        epochs = _epochs(trace, dev)
        shutil.rmtree(trace)
        for epoch in epochs:
            epoch["predicted_bytes"] = _of(answer, size + own, epoch["epoch"])
            epoch["predicted_stall_s"] = later + per_byte * epoch["predicted_bytes"]["kernel"]
        yield {**about, "others_share": others, "epochs": epochs}


def _without_noise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Takes epochs that other work slowed down out of the runs; returns them."""
    times = [epoch["compute_s"] for run in runs for epoch in run["epochs"]]
    most = _NOISY * statistics.median(times) if times else 0
    noisy = []
    for run in runs:
        for epoch in [one for one in run["epochs"] if one["compute_s"] > most]:
            run["epochs"].remove(epoch)
            about = {name: run[name] for name in ("order", "share")}
            noisy.append({**about, **epoch, "dropped": "other work ran on the CPUs"})
    return noisy


def main() -> None:
    """Records, predicts and runs, for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--medium", default="hdd", help="a medium of workloads/studies")
    parser.add_argument("--order", choices=_ORDERS, help="this order only")
    parser.add_argument("--shares", default=",".join(map(str, _SHARES)))
    parser.add_argument("--work", type=Path, help="folder for the file system and the traces")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is removed
    shares = [float(share) for share in options.shares.split(",")]
    runs: list[dict[str, Any]] = []
    dropped: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.work) as name, contextlib.ExitStack() as stack:
        training = Training(Path(name), options, stack)
        for order in [options.order] if options.order else _ORDERS:
            for row in _measured(training, order, shares):
                (dropped if "dropped" in row else runs).append(row)
                print(row, flush=True, file=sys.stderr if options.json else sys.stdout)
    dropped += _without_noise(runs)
    result = {"data_bytes": training.data_bytes, "runs": runs, "dropped": dropped}
    print(json.dumps(result) if options.json else f"{len(dropped)} dropped")


if __name__ == "__main__":
    main()
