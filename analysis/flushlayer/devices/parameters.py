"""What is known of a device: the parameters that there are, and the units they are given in."""

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
"""Units of a quantity, each with what one of it is in the first: ns, B/s, B, ..."""

MOST = {"time": 1e15}
"""The largest value of a quantity, in its first unit (11 days); else MOST_ELSE."""
MOST_ELSE = 1e24


@dataclass(frozen=True)
class Known:
    """A parameter that a device may have."""

    quantity: str
    """A key of UNITS."""
    kinds: tuple[str, ...]
    doc: str
    zero: bool = False
    """0 is a value that makes sense."""


_ANY = ("disk", "ssd", "nvm")
_FLASH = ("ssd", "nvm")

PARAMETERS: dict[str, Known] = {
    "capacity": Known("size", _ANY, "bytes that it holds"),
    "read_latency": Known(
        "time", _ANY, "time of a read of a page, alone; of nvm, until its first byte", zero=True
    ),
    "write_latency": Known(
        "time", _ANY, "time of a write of a page, alone; of nvm, until its first byte", zero=True
    ),
    "write_latency_p99_999": Known("time", _ANY, "the time that 1 write of 100,000 exceeds"),
    "bandwidth_read": Known("bandwidth", _ANY, "sequential reads"),
    "bandwidth_write": Known("bandwidth", _ANY, "sequential writes"),
    "rotation": Known("speed", ("disk",), "turns of the platters a minute"),
    "seek_read": Known("time", ("disk",), "mean seek between random places, to read"),
    "seek_write": Known("time", ("disk",), "mean seek between random places, to write"),
    "seek_track_read": Known("time", ("disk",), "seek to the next track, to read", zero=True),
    "seek_track_write": Known("time", ("disk",), "seek to the next track, to write", zero=True),
    "seek_full_read": Known("time", ("disk",), "seek from the first track to the last, to read"),
    "seek_full_write": Known("time", ("disk",), "seek from the first track to the last, to write"),
    "overhead": Known("time", _ANY, "time of the controller for each request", zero=True),
    "queue_depth": Known("requests", ("disk", "ssd"), "requests that it takes at once"),
    "write_cache": Known("size", ("disk",), "volatile bytes that acknowledge a write early"),
    "interface": Known("bandwidth", ("disk",), "how fast its write cache takes data"),
    "flush_latency": Known(
        "time", _ANY, "time of a flush when its cache is empty; of FUA, too", zero=True
    ),
    "iops_depth1_read": Known("rate", _FLASH, "random reads of 4 KiB a second, one at a time"),
    "iops_depth1_write": Known("rate", _FLASH, "random writes of 4 KiB a second, one at a time"),
    "iops_read": Known("rate", _FLASH, "random reads of 4 KiB a second, many at a time"),
    "iops_write": Known("rate", _FLASH, "random writes of 4 KiB a second, many at a time"),
    "channels": Known("requests", _FLASH, "requests that it works on at once"),
    "grain": Known("size", _FLASH, "bytes that it reads and writes at once"),
    "endurance": Known("wear", _FLASH, "writes that a cell bears"),
    "rated_writes": Known("size", _FLASH, "bytes that may be written while the warranty lasts"),
    "drive_writes_per_day": Known("fillings", _FLASH, "times its capacity that it bears a day"),
    "power_read": Known("power", _ANY, "power while it reads"),
    "power_write": Known("power", _ANY, "power while it writes"),
    "high_watermark": Known("share", ("destage",), "share of the layer at which destaging starts"),
    "low_watermark": Known(
        "share", ("destage",), "share of the layer at which destaging stops", zero=True
    ),
    "autocommit_blocks": Known("pages", ("destage",), "written pages that make a commit"),
    "autocommit_time": Known("time", ("destage",), "time after which writes are committed"),
}


def base_unit(name: str) -> str:
    """The unit that a parameter's value is kept in; "" for a share."""
    units = UNITS[PARAMETERS[name].quantity]
    return "" if "%" in units else next(iter(units))
