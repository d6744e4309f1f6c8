"""Real layers against the what-if: the same load, measured, and simulated from the bare disk's
recording."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.kernels.recorded import Failed
from scripts.kernels.roots import PROJECT
from scripts.kernels.table import aligned
from scripts.layers.asked import LONG, SCATTERED, Times
from scripts.layers.loads import PAGE

POLICIES = {
    "writecache-ssd": "dm-writecache-ssd",
    "writecache-pmem": "dm-writecache-pmem",
    "cache": None,
}
"""The destage policy that models each layer of `layers.py`; None: there is none."""
SECTORS, MEAN, MEDIAN = "sectors", "mean fsync", "median fsync"
BY_THE_END = "sectors by the end of the load"
MOST_OFF = {SECTORS: 0.05, MEAN: 0.2}
"""The largest relative error that passes, of each measure that is checked."""
BARE = "no layer"
QUIET = 0.1
"""The largest error of the mean fsync without a layer at which the other means are checked: the
simulation repeats its own recording, so the rest of the error is the emulated machine's noise."""
_NOISE = (
    "this machine was too busy to emulate another in time (without a layer, the simulation repeats"
    " its own recording, and yet the mean is off)"
)
_QUEUE = """\
queue_depth = { value = 256, unit = "requests", confidence = "specification", source = "QEMU" }
"""
"""The requests that QEMU's disk takes at once."""


@dataclass(frozen=True)
class Row:
    """A measure of a layer; None: the what-if has no policy like it."""

    layer: str
    measure: str
    measured: float
    simulated: float | None

    @property
    def ratio(self) -> float | None:
        if self.simulated is None:
            return None
        if self.simulated == self.measured:
            return 1.0
        return self.simulated / self.measured if self.measured else math.inf

    @property
    def error(self) -> float:
        """Returns the relative error of the simulation; 0 if there is none."""
        return 0.0 if self.ratio is None else abs(self.ratio - 1)


def rows(folder: Path, facts: dict[str, Any]) -> list[Row]:
    """Returns the measures of all layers of a guest, whose results are in the folder."""
    bare = facts.get("bare", {})
    if bare.get("error", "missing") is not None:
        raise Failed(f"no recording of the bare disk: {bare.get('error')}")
    found = _told(BARE, bare, None)
    for name, policy in POLICIES.items():
        told = facts.get(name, {"error": "the guest was ended before"})
        if told["error"] is not None:
            raise Failed(f"{name}: {told['error']}")
        simulated = None
        if policy is not None:
            simulated = _simulated(folder, bare, told, name, policy)
            if found[0].simulated is None:
                found = _told(BARE, bare, simulated["without"])
        found += _told(name, told, None if simulated is None else simulated["with"])
    return found


def _told(name: str, real: dict[str, Any], simulated: dict[str, float] | None) -> list[Row]:
    took = real["load"]["fsyncs"]
    measured = {
        SECTORS: float(real["sectors_with_drain"]),
        BY_THE_END: float(real["sectors"]),
        MEAN: statistics.mean(took) / 1e6,
        MEDIAN: statistics.median(took) / 1e6,
    }
    return [
        Row(name, measure, value, None if simulated is None else simulated.get(measure))
        for measure, value in measured.items()
    ]


def _simulated(
    folder: Path, bare: dict[str, Any], layer: dict[str, Any], name: str, policy: str
) -> dict[str, dict[str, float]]:
    """Runs `tracer simulate` over the recording of the bare disk."""
    devices = folder / f"{name}.toml"
    devices.write_text(_disk("slow", bare["asked"]) + _QUEUE + medium(name, layer["asked"]))
    pages = int(layer["status"][0].split()[4])
    command = [
        *(sys.executable, "-m", "tracer", "simulate", str(folder / "bare.trace"), "--json"),
        *("--model", "timed", "--destage", policy, "--capacity-pages", str(pages)),
        *("--devices", str(devices), "--disk", "slow", "--medium", name),
        *("--dev", bare["disk"], "--all-writers"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    if ran.returncode:
        raise Failed(f"tracer simulate failed: {ran.stderr.strip()}")
    answer = json.loads(ran.stdout)
    calls = {row["layer"]: row for row in answer["sync_calls"]}
    (use,) = answer["layers"]
    found = {}
    for side, pages_written, left in (
        ("without", answer["disk_pages_without"], 0),
        ("with", answer["disk_pages"], use["resident"]),
    ):
        found[side] = {
            SECTORS: (pages_written + left) * 8.0,
            BY_THE_END: pages_written * 8.0,
            MEAN: calls[side]["mean_ns"] / 1e6,
            MEDIAN: calls[side]["p50_ns"] / 1e6,
        }
    return found


def _disk(name: str, asked: Times) -> str:
    """Returns an entry of the catalogue of devices: a disk that takes the same time for each."""
    write = statistics.fmean(asked["write"])
    return _entry(name, "disk", write, asked, {"read_latency": (write, "ns")})


def medium(name: str, asked: Times) -> str:
    """Returns an entry of the catalogue of devices: the medium of a layer.

    A page takes the latency and the time in which the medium takes one of many. That time is the
    larger one of two: for the pages of a long write (bandwidth), and for writes of a page that come
    together (iops_write).
    """
    write, long, scattered = (
        statistics.fmean(asked[one]) for one in ("write", "long", "scattered")
    )
    page = max(1.0, (long - write) / (LONG - 1))
    gap = max(1.0, (scattered - write) / (SCATTERED - 1))
    latency = max(0.0, write - max(page, gap))
    more = {
        "bandwidth_write": (PAGE / page * 1e9, "B/s"),
        "iops_write": (1e9 / gap, "/s"),
    }
    return _entry(name, "nvm", latency, asked, more)


def _entry(
    name: str, kind: str, latency: float, asked: Times, more: dict[str, tuple[float, str]]
) -> str:
    write, flush, fua = (statistics.fmean(asked[one]) for one in ("write", "flush", "fua"))
    values = {
        "write_latency": (latency, "ns"),
        "flush_latency": (flush, "ns"),
        "fua_latency": (max(0.0, fua - write), "ns"),
        **more,
    }
    lines = [f"[{name}]", f'kind = "{kind}"', 'doc = "measured in the guest"']
    lines += [
        f'{key} = {{ value = {round(value)}, unit = "{unit}", confidence = "measured",'
        ' source = "guest" }'
        for key, (value, unit) in values.items()
    ]
    return "\n".join(lines) + "\n"


def is_quiet(found: list[Row]) -> bool:
    """Returns whether the emulated machine kept time well enough to compare times."""
    return all(row.error <= QUIET for row in found if (row.layer, row.measure) == (BARE, MEAN))


def failing(found: list[Row]) -> list[Row]:
    """Returns the rows that are checked and too far off."""
    quiet = is_quiet(found)
    return [
        row
        for row in found
        if row.layer != BARE
        and row.error > MOST_OFF.get(row.measure, math.inf)
        and (quiet or row.measure != MEAN)
    ]


def lines(found: list[Row]) -> list[str]:
    """Returns the rows as a markdown table, and a note if times could not be checked."""
    fails = failing(found)
    table = [["layer", "measure", "measured", "simulated", "ratio"]]
    for row in found:
        form = "{:,.0f}" if "sectors" in row.measure else "{:.2f} ms"
        simulated = "-" if row.simulated is None else form.format(row.simulated)
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}" + " FAILS" * (row in fails)
        table.append([row.layer, row.measure, form.format(row.measured), simulated, ratio])
    if is_quiet(found):
        return aligned(table)
    return [*aligned(table), "", f"Mean times are not checked: {_NOISE}"]
