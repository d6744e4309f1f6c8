"""The parameters of devices, and the units in which files give them."""

from __future__ import annotations

from dataclasses import dataclass

UNITS: dict[str, dict[str, float]] = {
    "time": {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9},
    "bandwidth": {"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9},
    "size": {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    | {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    "rate": {"/s": 1},
    "speed": {"rpm": 1},
    "requests": {"requests": 1},
    "pages": {"pages": 1},
    "share": {"%": 0.01},
    "wear": {"cycles": 1},
    "fillings": {"/day": 1},
    "power": {"W": 1},
}
"""Units of each quantity, with their size in the first one, the base unit (ns, B/s, B, ...). A
share is kept as a fraction."""

MOST = {"time": 1e15}
"""Largest value of a quantity, in its base unit (11 days for a time); else MOST_ELSE."""
MOST_ELSE = 1e24


@dataclass(frozen=True)
class Known:
    """A parameter that a device may have."""

    quantity: str
    """A key of UNITS."""
    kinds: tuple[str, ...]
    doc: str
    zero: tuple[str, ...] = ()
    """Kinds of devices whose parameter may be 0."""


_ANY = ("disk", "ssd", "nvm")
_FLASH = ("ssd", "nvm")

PARAMETERS: dict[str, Known] = {
    "capacity": Known("size", _ANY, "capacity of the device"),
    "read_latency": Known(
        "time", _ANY, "time of one read of a page; for nvm, until its first byte", zero=_ANY
    ),
    "write_latency": Known(
        "time", _ANY, "time of one write of a page; for nvm, until its first byte", zero=("nvm",)
    ),
    "write_latency_p99_999": Known("time", _ANY, "the time that 1 write of 100,000 exceeds"),
    "bandwidth_read": Known("bandwidth", _ANY, "bandwidth of sequential reads"),
    "bandwidth_write": Known("bandwidth", _ANY, "bandwidth of sequential writes"),
    "rotation": Known("speed", ("disk",), "rotation speed of the platters"),
    "seek_read": Known("time", ("disk",), "mean seek between random places, for reads"),
    "seek_write": Known("time", ("disk",), "mean seek between random places, for writes"),
    "seek_track_read": Known(
        "time", ("disk",), "seek to the next track, for reads", zero=("disk",)
    ),
    "seek_track_write": Known(
        "time", ("disk",), "seek to the next track, for writes", zero=("disk",)
    ),
    "seek_full_read": Known("time", ("disk",), "seek from the first track to the last, for reads"),
    "seek_full_write": Known(
        "time", ("disk",), "seek from the first track to the last, for writes"
    ),
    "overhead": Known("time", _ANY, "time of the controller for each request", zero=_ANY),
    "queue_depth": Known("requests", ("disk", "ssd"), "requests that the device takes at once"),
    "write_cache": Known("size", ("disk",), "size of the volatile write cache"),
    "interface": Known("bandwidth", ("disk",), "bandwidth from the host to the write cache"),
    "flush_latency": Known(
        "time", _ANY, "time of a flush with an empty cache; also added to FUA writes", zero=_ANY
    ),
    "fua_latency": Known(
        "time", _ANY, "time added to FUA writes, if it is not that of a flush", zero=_ANY
    ),
    "iops_depth1_read": Known("rate", _FLASH, "random reads of 4 KiB a second, one at a time"),
    "iops_depth1_write": Known("rate", _FLASH, "random writes of 4 KiB a second, one at a time"),
    "iops_read": Known("rate", _FLASH, "random reads of 4 KiB a second, many at a time"),
    "iops_write": Known("rate", _FLASH, "random writes of 4 KiB a second, many at a time"),
    "channels": Known("requests", _FLASH, "requests that the device serves at once"),
    "grain": Known("size", _FLASH, "smallest unit of a read or write inside the device"),
    "endurance": Known("wear", _FLASH, "writes that a cell endures"),
    "rated_writes": Known("size", _FLASH, "bytes that may be written during the warranty"),
    "drive_writes_per_day": Known("fillings", _FLASH, "rated writes per day, in full capacities"),
    "power_read": Known("power", _ANY, "power during reads"),
    "power_write": Known("power", _ANY, "power during writes"),
    "high_watermark": Known("share", ("destage",), "share of the layer at which destaging starts"),
    "pause_writeback": Known(
        "time", ("destage",), "pause of destaging after a write that goes around a full layer"
    ),
    "low_watermark": Known(
        "share", ("destage",), "share of the layer at which destaging stops", zero=("destage",)
    ),
    "autocommit_blocks": Known("pages", ("destage",), "written pages after which a commit follows"),
    "autocommit_time": Known("time", ("destage",), "time after which writes are committed"),
}


def base_unit(name: str) -> str:
    """Returns the unit in which a parameter's value is kept; "" for a share."""
    units = UNITS[PARAMETERS[name].quantity]
    return "" if "%" in units else next(iter(units))
