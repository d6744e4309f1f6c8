"""Comparison of a predicted flush layer with a real one, on a real kernel and file system.

python benchmarks/real_layer.py --json [--lines N] [--rounds N] [--request-ms MS]

ext4 on a slow disk (`parts/slow_disk.py`: one request at a time, a stated time each) runs a job
that writes as training does (`parts/fsync_job.py`), and is recorded. From that recording alone, and
the times of the two devices, the model `timed` predicts the results of the same job with

- `layer`: the same disk behind a non-volatile layer that takes writes at once and gives them to the
  disk two seconds later, page by page;
- `journal`: ext4's journal in memory with data=journal. It is no layer below the file system: an
  fsync commits its data to the journal, and then writes it in place and flushes the disk all the
  same. That is told to the model: only what the journal writes goes into its layer.

Every round also runs the job with each of them. Prints one JSON object: for each layer and measure
(sectors that reach the disk, mean, p50 and p99 of fsync in ms, total time in s) `predicted`,
`measured` and `ratio`, medians over the rounds; `baseline` has the measures without a layer, as
simulated and as they were. Needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from parts import layers
from parts.layers import Kind, Measured

from tracer.analysis.flushlayer.devices import Device, Parameter
from tracer.analysis.flushlayer.devices.parameters import base_unit
from tracer.analysis.flushlayer.timed import Layer, simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.outcome import Outcome
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.timed.state import FLUSH, WRITE
from tracer.analysis.flushlayer.trace.accesses import Accesses, page_writebacks
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.analysis.flushlayer.trace.sync_calls import sync_calls
from tracer.store.trace import Trace

_AGE_MS = 2000.0
_LAYER_PAGES = 1 << 14
_JOURNAL_AGE_NS = 30_000_000_000


def measure(folder: Path, lines: int, request_ms: float) -> dict[str, dict[str, Any]]:
    """Runs one round: measured and predicted, without a layer and with each."""
    trace = folder / "bare.trace"
    tracer = [sys.executable, "-c", "from tracer.cli.main import main; main()"]

    def recorder(output: Path) -> list[str | Path]:
        return [*tracer, "record", "-o", output, "--"]

    bare = layers.run(folder, lines, request_ms, Kind.BARE, recorder(trace))
    behind = layers.run(folder, lines, request_ms, Kind.LAYER, age_ms=_AGE_MS)
    journal = layers.run(folder, lines, request_ms, Kind.JOURNAL)
    layers.ask_memory(folder, recorder(folder / "memory.trace"))
    layers.ask_layer(folder, recorder(folder / "through.trace"))
    memory, through = (_memory(folder / f"{name}.trace") for name in ("memory", "through"))
    found: dict[str, dict[str, Any]] = {}
    with Trace(trace) as opened:
        dev = _device(opened)
        accesses = page_writebacks(opened, [dev], reads=True, flushes_too=True)
        requests = recorded_requests(opened, accesses)
        disk = Disk(_disk(requests, bare), merge=False)
        runs = {
            "baseline": (None, bare),
            "layer": (
                Layer(_LAYER_PAGES, through, Destage("age", 1, age_ns=int(_AGE_MS * 1e6))),
                behind,
            ),
            "journal": (
                Layer(_LAYER_PAGES, memory, Destage("age", 1, age_ns=_JOURNAL_AGE_NS),
                      buffer="sync-only", flushes_pass=True),
                journal,
            ),
        }  # fmt: skip
        for name, (layer, measured) in runs.items():
            asked = _in_place(requests, accesses) if name == "journal" else requests
            outcome = simulate(asked, disk, layer, "closed")
            # The journal drops its data once they are written in place.
            drops = name == "journal"
            told = _predicted(opened, requests, outcome, bare, drops)
            found[name] = _rows(told, _measured(measured))
    return found


def _in_place(requests: Requests, accesses: Accesses) -> Requests:
    """Returns the requests with nobody waiting for file data: only the journal uses the layer."""
    assert accesses.bios is not None and requests.reason is not None
    journal = accesses.bios.names["reason"].index("journal")
    data = (requests.pages > 0) & (requests.reason != journal)
    return replace(requests, waited=requests.waited & ~data)


def _device(trace: Trace) -> str:
    """Returns the loop device of the slow disk: the one with the most flushes."""
    flushed = (
        "SELECT dev FROM block WHERE event = 'bio_queue' AND rwbs LIKE 'F%' AND dev LIKE '7:%'"
    )
    return str(trace.sql(f"{flushed} GROUP BY dev ORDER BY count(*) DESC")["dev"].iloc[0])


def _disk(requests: Requests, bare: Measured) -> Device:
    """Makes a medium of the slow disk from the recording: a single request, and a flush."""
    assert requests.done is not None
    alone = (requests.op == 0) & (requests.done > 0)
    if requests.fua is not None:
        alone &= ~requests.fua
    write_ns = float(np.median((requests.done - requests.ts)[alone]))
    flushes = bare.served[bare.served.how == "f"]
    writes = bare.served[bare.served.how == "w"]
    # The way to the disk and back is that of a write.
    way = write_ns - float((writes.end - writes.begin).median())
    flush_ns = float((flushes.end - flushes.begin).median()) + way
    return _made("disk", read_latency=write_ns, write_latency=write_ns, flush_latency=flush_ns)


def _memory(trace: Path) -> Device:
    """Makes a medium with times of a page, 1 MiB and a flush from a recording of bursts.py."""
    with Trace(trace) as opened:
        dev = _device(opened)
        asked = recorded_requests(opened, page_writebacks(opened, [dev], flushes_too=True))
    assert asked.done is not None
    took = np.where(asked.done > 0, asked.done - asked.ts, np.nan)
    write = asked.op == WRITE
    page_ns = float(np.nanmean(took[write & (asked.pages == 1)]))
    mib_ns = float(np.nanmedian(took[write & (asked.pages == 256)]))
    rate = ((1 << 20) - 4096) / max(1.0, mib_ns - page_ns) * 1e9
    latency_ns = max(0.0, page_ns - 4096 / rate * 1e9)
    return _made(
        "nvm",
        read_latency=latency_ns,
        write_latency=latency_ns,
        bandwidth_read=rate,
        bandwidth_write=rate,
        flush_latency=float(np.nanmean(took[asked.op == FLUSH])),
    )


def _made(kind: Any, **values: float) -> Device:
    known = {
        name: Parameter(value, value, base_unit(name), "measured", "this benchmark")
        for name, value in values.items()
    }
    return Device(f"measured-{kind}", kind, "measured by this benchmark", known)


def _predicted(
    trace: Trace, requests: Requests, outcome: Outcome, bare: Measured, drops: bool
) -> dict[str, float]:
    calls = sync_calls(trace, requests, outcome).query("call == 'fsync'")  # not the sync at the end
    saved_s = float((calls.recorded_ns - calls.simulated_ns).sum()) / 1e9
    left = sum(-layer.destaged if drops else layer.resident for layer in outcome.layers)
    return _told(calls.simulated_ns, bare.total_s - saved_s, (outcome.disk_pages + left) * 8)


def _measured(run: Measured) -> dict[str, float]:
    return _told(run.fsyncs.dur_ns, run.total_s, run.sectors_written)


def _told(times: pd.Series[int], total_s: float, sectors: int) -> dict[str, float]:
    ms = times.to_numpy(float) / 1e6
    p50, p99 = np.quantile(ms, [0.5, 0.99])
    return {
        "sectors": float(sectors),
        "fsync_mean_ms": float(ms.mean()),
        "fsync_p50_ms": float(p50),
        "fsync_p99_ms": float(p99),
        "total_s": total_s,
    }


def _rows(predicted: dict[str, float], measured: dict[str, float]) -> dict[str, Any]:
    return {name: {"predicted": predicted[name], "measured": measured[name]} for name in predicted}


def _medians(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, measures in rounds[0].items():
        made[name] = {}
        for measure_name in measures:
            row = {
                side: statistics.median(found[name][measure_name][side] for found in rounds)
                for side in ("predicted", "measured")
            }
            row["ratio"] = row["predicted"] / row["measured"]
            made[name][measure_name] = row
    return made


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lines", type=int, default=240, help="log lines that the job writes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--request-ms", type=float, default=8)
    given = parser.parse_args()
    rounds = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            rounds.append(measure(Path(folder), given.lines, given.request_ms))
    found = _medians(rounds)
    if given.json:
        print(json.dumps({"lines": given.lines, "rounds": given.rounds, **found}))
        return
    for name, measures in found.items():
        print(name)
        print(pd.DataFrame(measures).T.to_string(float_format="%.3g"))


if __name__ == "__main__":
    main()
