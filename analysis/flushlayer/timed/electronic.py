"""The model of a device without moving parts: an SSD, or a memory as the medium of a layer."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.devices import PAGE, Device, fua_ns, missing, page_ns
from tracer.analysis.flushlayer.timed import service
from tracer.analysis.flushlayer.timed.state import READ, WRITE

_NAMES = ((WRITE, "write"), (READ, "read"))


def electronic(device: Device) -> NDArray[np.float64]:
    """Returns a row of service.MODEL columns.

    The latency of an SSD is the whole time of a request of 4096 bytes; the latency of a memory is
    the time until its first byte. A memory of unknown bandwidth takes its latency for each page.
    Parameters that are known only for writes also serve for reads (`assumptions` reports it).
    Raises UsageError if neither latency nor bandwidth is known.
    """
    row = np.zeros(service.MODEL)
    row[service.FAMILY] = service.ELECTRONIC
    row[service.GRAIN] = device.value("grain") or 0
    row[service.FLUSH_NS] = device.value("flush_latency") or 0
    row[service.FUA_NS] = fua_ns(device)
    channels = 1.0
    for op, name in _NAMES:
        name = _known(device, name)
        bandwidth = device.value(f"bandwidth_{name}")
        rate = device.value(f"iops_{name}")
        per_byte = 1e9 / bandwidth if bandwidth else 0.0
        gap = 1e9 / rate if rate else 0.0
        bus = max(gap, PAGE * per_byte)
        if device.kind == "nvm":
            known = device.value(f"{name}_latency")
            if known is None and not bandwidth:
                raise missing(device, f"{name}_latency or bandwidth_{name}")
            latency = known or 0.0
            row[service.PER_PAGE + op] = not bandwidth
        else:
            latency = max(0.0, page_ns(device, "read" if name == "read" else "write") - bus)
        row[service.LATENCY_NS + op] = latency
        row[service.NS_PER_BYTE + op] = per_byte
        row[service.GAP_NS + op] = gap
        if gap:
            channels = max(channels, math.ceil(latency / gap) + 1)
    row[service.SERVERS] = int(device.value("channels") or channels)
    return row


def assumptions(device: Device) -> list[str]:
    """Returns the assumptions of the model of a layer's medium, one sentence each."""
    said = []
    if _known(device, "read") == "write":
        said.append(f"{device.name}: read times are not known; reads take as long as writes")
    if device.kind == "nvm":
        if device.value("bandwidth_write") is None:
            said.append(f"{device.name}: bandwidth is not known; each page takes one latency")
        elif device.value("write_latency") is None:
            said.append(
                f"{device.name}: write latency is not known; a write takes its transfer time"
            )
    return said


def _known(device: Device, name: str) -> str:
    parameters = (f"{name}_latency", f"bandwidth_{name}", f"iops_depth1_{name}")
    if name == "read" and all(device.value(p) is None for p in parameters):
        return "write"
    return name
