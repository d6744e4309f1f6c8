"""The results of a timed simulation: response times, the use of devices, comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.probes.errors import UsageError

QUANTILES = {"p50_ns": 0.5, "p95_ns": 0.95, "p99_ns": 0.99, "p99_9_ns": 0.999}
GROUPS = ("op", "device", "tenant", "reason", "phase", "waited")
OPS = ("write", "read", "flush")


@dataclass(frozen=True)
class DeviceUse:
    """The work of a device from the first arrival to the last completion."""

    name: str
    parts: int
    """Requests of bios and destages to the device, before merging."""
    requests: int
    """Requests served: parts less merged parts."""
    merged: int
    busy_ns: int
    """Busy time in ns, summed over the channels."""
    utilisation: float | None
    """Busy share of its channels; None if no time passed."""
    mean_in_system: float | None
    """Mean number of parts waiting or in service over time; None if no time passed."""
    most_in_system: int
    in_system_ns: float
    """Integral over time of the parts in the device: the sum of their times in it (Little's
    law)."""
    bytes_read: int
    bytes_written: int
    channels: int
    """Requests that the device serves at once."""

    @classmethod
    def of(
        cls, name: str, line: np.void, area: float, model: NDArray[np.float64], passed: int
    ) -> DeviceUse:
        """Makes one from a row of World.line and its area; `passed` is the simulated time in ns."""
        servers = float(model[service.SERVERS])
        busy = int(line["busy"])
        return cls(
            name,
            int(line["parts"]),
            int(line["served"]),
            int(line["merged"]),
            busy,
            busy / (servers * passed) if passed else None,
            float(area) / passed if passed else None,
            int(line["most"]),
            float(area),
            int(line["bytes_read"]),
            int(line["bytes_written"]),
            int(servers),
        )


@dataclass(frozen=True)
class LayerUse:
    """The work of a layer, or of a tenant's partition of it, in pages.

    written = overwritten + destaged + resident.
    """

    capacity: int
    written: int
    overwritten: int
    """Written again, in the layer or past it, before they were sent to the disk."""
    destaged: int
    """Sent to the disk, to make room or by the destage policy."""
    resident: int
    """Dirty at the end; a final drain would write them, too."""
    read_hits: int
    filled: int
    """Pages of reads that entered; the medium wrote them, too."""
    most_dirty: int
    around: int
    """Pages of writes that found too few free slots, and went to the disk instead."""

    @classmethod
    def of(cls, row: np.void) -> LayerUse:
        """Makes one from a row of World.layer."""
        columns = (
            *("capacity", "writes", "overwritten", "destaged", "dirties", "read_hits"),
            *("filled", "peak", "around"),
        )
        return cls(*(int(row[c]) for c in columns))


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation; arrays have one value for each bio."""

    arrived_ns: NDArray[np.int64]
    """Time of arrival: the recorded time in open replay, the simulated time in closed replay."""
    response_ns: NDArray[np.int64]
    """Time from arrival to completion."""
    hits: NDArray[np.int32]
    """Pages of a write that overwrote dirty pages and so saved a disk write; pages of a read that
    the layer held."""
    evictions: NDArray[np.int32]
    """Pages that the disk had to write before the bio had room in the layer."""
    begin_ns: int
    end_ns: int
    disks: tuple[DeviceUse, ...]
    medium: DeviceUse | None
    layers: tuple[LayerUse, ...]

    @property
    def disk_pages(self) -> int:
        """Bytes written to all disks, in pages of 4096 bytes, rounded up."""
        return -(-sum(disk.bytes_written for disk in self.disks) // 4096)


def results(requests: Requests, outcome: Outcome, by: Sequence[str] = ()) -> pd.DataFrame:
    """Returns response times of the bios, grouped by any of GROUPS; without groups, one row.

    Columns: the groups (op by its name, the others as codes), requests, pages, mean_ns, p50_ns,
    p95_ns, p99_ns, p99_9_ns, max_ns, waited_for_room (bios that had to wait for a destage),
    hit_pages. A percentile is the inverse of the distribution function: the smallest observed time
    that at least that share of the bios does not exceed. So p50_ns of an even number of bios is
    the lower of the two times in the middle, not their mean. Raises UsageError if a group is
    unknown or the bios lack its column.
    """
    columns: dict[str, NDArray[np.generic]] = {}
    for name in by:
        values = getattr(requests, name, None) if name in GROUPS else None
        if values is None:
            there = ", ".join(g for g in GROUPS if getattr(requests, g) is not None)
            raise UsageError(f"the bios cannot be grouped by {name!r}", f"known: {there}")
        columns[name] = np.array(OPS)[values] if name == "op" else values
    frame = pd.DataFrame(
        columns
        | {
            "response": outcome.response_ns,
            "pages": requests.pages.astype(np.int64),
            "room": outcome.evictions > 0,
            "hits": outcome.hits.astype(np.int64),
        }
    )
    if not by:
        return pd.DataFrame([_summary(frame)]) if len(frame) else pd.DataFrame(columns=_COLUMNS)
    rows = [
        dict(zip(by, key, strict=True)) | _summary(group)
        for key, group in frame.groupby(list(by), sort=True)
    ]
    return pd.DataFrame(rows, columns=[*by, *_COLUMNS])


_COLUMNS = ["requests", "pages", "mean_ns", *QUANTILES, "max_ns", "waited_for_room", "hit_pages"]


def _summary(frame: pd.DataFrame) -> dict[str, float]:
    times = frame["response"].to_numpy()
    shares = list(QUANTILES.values())
    at = np.quantile(times, shares, method="inverted_cdf")
    return {
        "requests": len(frame),
        "pages": int(frame["pages"].sum()),
        "mean_ns": float(times.mean()),
        **{name: int(value) for name, value in zip(QUANTILES, at, strict=True)},
        "max_ns": int(times.max()),
        "waited_for_room": int(frame["room"].sum()),
        "hit_pages": int(frame["hits"].sum()),
    }


_TIMES = ["mean_ns", *QUANTILES, "max_ns"]


def improvement(
    requests: Requests, with_layer: Outcome, baseline: Outcome, by: Sequence[str] = ()
) -> pd.DataFrame:
    """Returns 1 - time with the layer / time without it, for each time of `results`.

    Columns: the groups, requests, then mean, p50, ...; NaN if the baseline's time is 0.
    """
    one, other = results(requests, with_layer, by), results(requests, baseline, by)
    out = one[[*by, "requests"]].copy()
    for column in _TIMES:
        base = other[column].astype(float)
        out[column.removesuffix("_ns")] = 1 - one[column] / base.where(base > 0)
    return out


def replay_gap(requests: Requests, opened: Outcome, closed: Outcome) -> pd.DataFrame:
    """Compares open and closed replay of the same bios: the effect of the old device's feedback.

    Columns: measure (mean, p50, ...), open_ns, closed_ns, ratio (open / closed; NaN if closed
    is 0).
    """
    one, other = results(requests, opened), results(requests, closed)
    if one.empty:
        return pd.DataFrame(columns=["measure", "open_ns", "closed_ns", "ratio"])
    frame = pd.DataFrame(
        {
            "measure": [name.removesuffix("_ns") for name in _TIMES],
            "open_ns": [float(one[name].iloc[0]) for name in _TIMES],
            "closed_ns": [float(other[name].iloc[0]) for name in _TIMES],
        }
    )
    frame["ratio"] = frame["open_ns"] / frame["closed_ns"].where(frame["closed_ns"] > 0)
    return frame
