"""Bios and devices for the timed model, written out in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracer.analysis.flushlayer.devices import Device, Parameter
from tracer.analysis.flushlayer.devices.parameters import base_unit
from tracer.analysis.flushlayer.timed.requests import Requests

_OPS = {"write": 0, "read": 1, "flush": 2}


def bios(rows: Sequence[tuple[int, str, int, int]], **more: Any) -> Requests:
    """Bios of (ns, op, first page of the device, pages), on device 0 unless `device` says else.

    `more`: other columns.
    """
    ts, ops, places, pages = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 4
    )
    counts = np.array(pages, np.int64)
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    device = np.asarray(more.pop("device", np.zeros(len(rows))), np.int64)
    within = np.arange(total) - np.repeat(first, counts)
    keys = np.repeat(device, counts) << 40 | np.repeat(np.array(places, np.int64), counts) + within
    names, ids = np.unique(keys, return_inverse=True)
    return Requests(
        ts=np.array(ts, np.int64),
        op=np.array([_OPS[op] for op in ops], np.uint8),
        device=device.astype(np.int16),
        sector=np.array(places, np.int64) * 8,
        pages=counts.astype(np.int32),
        first=first,
        page=ids.astype(np.int32),
        unique=len(names),
        **{name: np.asarray(values) for name, values in more.items()},
    )


def flat(name: str, kind: str = "disk", **values: float) -> Device:
    """A device of exact parameters in base units; bandwidth stands for that of both ways."""
    if "bandwidth" in values:
        both = values.pop("bandwidth")
        values |= {"bandwidth_read": both, "bandwidth_write": both}
    return Device(
        name,
        kind,  # type: ignore[arg-type]
        "",
        {
            key: Parameter(float(v), float(v), base_unit(key), "assumed", "a test")
            for key, v in values.items()
        },
    )
