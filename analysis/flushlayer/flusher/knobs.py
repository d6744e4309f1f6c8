"""The settings of the kernel's write-back: those of a recording, and changed ones.

Kernel: Documentation/admin-guide/sysctl/vm.rst, mm/page-writeback.c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tracer.analysis.flushlayer.trace.page_count import MODEL_PAGE, pages_of_kernel
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace

NS_PER_CENTISEC = 10_000_000
_DEFAULTS = {
    "dirty_ratio": 20,
    "dirty_background_ratio": 10,
    "dirty_bytes": 0,
    "dirty_background_bytes": 0,
    "dirty_expire_centisecs": 3000,
    "dirty_writeback_centisecs": 500,
}
"""Defaults of mm/page-writeback.c: vm_dirty_ratio, dirty_background_ratio, ..."""
NAMES = tuple(_DEFAULTS)
"""Names of the knobs, which are the names of their sysctls."""
_RATIOS = ("dirty_ratio", "dirty_background_ratio")
_INSTEAD = {
    "dirty_ratio": "dirty_bytes",
    "dirty_background_ratio": "dirty_background_bytes",
    "dirty_bytes": "dirty_ratio",
    "dirty_background_bytes": "dirty_background_ratio",
}
_MOST_CENTISECS = 100 * 86_400 * 365
_MOST_BYTES = 1 << 62
_FEWEST_BYTES = 2 * MODEL_PAGE
"""dirty_bytes_min of mm/page-writeback.c."""


@dataclass(frozen=True)
class Thresholds:
    """Limits in pages of 4096 bytes: domain_dirty_limits(); None: not known, not modelled."""

    background: int | None
    limit: int | None

    @property
    def freerun(self) -> int | None:
        """Dirty pages up to which no dirtier is paused: dirty_freerun_ceiling()."""
        if self.background is None or self.limit is None:
            return None
        return (self.background + self.limit) // 2


@dataclass(frozen=True)
class Knobs:
    """Values of the six sysctls, and the memory to which the ratios apply.

    A `*_bytes` that is not 0 replaces its `*_ratio`, as in the kernel. `dirtyable_bytes` is free
    memory and page cache (global_dirtyable_memory()); None: not known. `assumed` names the knobs
    that the trace does not record; they have the kernel's defaults. `page_bytes`: the size of the
    kernel's pages, a multiple of 4096; thresholds are whole ones.
    """

    dirty_ratio: float
    dirty_background_ratio: float
    dirty_bytes: int
    dirty_background_bytes: int
    dirty_expire_centisecs: int
    dirty_writeback_centisecs: int
    dirtyable_bytes: int | None = None
    assumed: tuple[str, ...] = ()
    page_bytes: int = MODEL_PAGE

    def __post_init__(self) -> None:
        for name in NAMES:
            _check(name, getattr(self, name))
        if self.dirtyable_bytes is not None:
            _check("dirtyable_bytes", self.dirtyable_bytes)

    @property
    def expire_ns(self) -> int:
        """Age in ns from which on the flusher writes an inode."""
        return self.dirty_expire_centisecs * NS_PER_CENTISEC

    @property
    def writeback_ns(self) -> int:
        """Time in ns between two of the flusher's looks for old inodes; 0: it never looks."""
        return self.dirty_writeback_centisecs * NS_PER_CENTISEC

    @property
    def thresholds(self) -> Thresholds:
        """Limits in pages: domain_dirty_limits(), for a task that is not real-time."""
        limit = self._pages(self.dirty_bytes, self.dirty_ratio)
        background = self._pages(self.dirty_background_bytes, self.dirty_background_ratio)
        if background is not None and limit is not None and background >= limit:
            background = limit // 2 // self._unit * self._unit
        return Thresholds(background, limit)

    def _pages(self, given: int, ratio: float) -> int | None:
        if given:
            return -(-given // self.page_bytes) * self._unit
        if self.dirtyable_bytes is None:
            return None
        return int(ratio * self.dirtyable_bytes / 100) // self.page_bytes * self._unit

    @property
    def _unit(self) -> int:
        return self.page_bytes // MODEL_PAGE

    def changed(self, **values: float) -> Knobs:
        """Returns a copy with other values, given by the names of sysctls or `dirtyable_bytes`.

        A new ratio sets its bytes to 0, and new bytes set their ratio to 0, as in the kernel. No
        bytes (0) leave the ratio.
        Raises UsageError for an unknown name and for a value out of range.
        """
        turned: dict[str, float] = {}
        for name, value in values.items():
            if name not in _DEFAULTS and name != "dirtyable_bytes":
                raise UsageError(f"there is no knob {name!r}", f"known: {', '.join(NAMES)}")
            _check(name, value)
            turned[name] = value if name in _RATIOS else int(value)
        for name in values:
            if name in _INSTEAD and (values[name] or name in _RATIOS):
                turned.setdefault(_INSTEAD[name], 0)
        assumed = tuple(name for name in self.assumed if name not in turned)
        return replace(self, **turned, assumed=assumed)  # type: ignore[arg-type]


def recorded_knobs(trace: Trace) -> Knobs:
    """Returns the knobs that were set during the recording of a trace.

    Dirtyable memory is the machine's memory less the median of the samples `memory_used`: the
    memory that the kernel reports as available. It is None without such samples.
    """
    vm = trace.manifest["vm"]
    values = {name: vm.get(name, default) for name, default in _DEFAULTS.items()}
    return Knobs(
        **values,
        dirtyable_bytes=_dirtyable_bytes(trace),
        assumed=tuple(name for name in NAMES if name not in vm),
        page_bytes=pages_of_kernel(trace) * MODEL_PAGE,
    )


def _dirtyable_bytes(trace: Trace) -> int | None:
    memory = trace.manifest["host"].get("memory_bytes")
    if not memory or "samples" not in trace.tables:
        return None
    found = trace.sql("SELECT median(value) AS used FROM samples WHERE name = 'memory_used'")
    used = found["used"].iloc[0]
    if used is None or not math.isfinite(used):
        return None
    return max(0, int(memory - used)) or None


def _check(name: str, value: float) -> None:
    most: float = _MOST_BYTES
    if name in _RATIOS:
        most = 100
    elif name.endswith("_centisecs"):
        most = _MOST_CENTISECS
    if not (math.isfinite(value) and 0 <= value <= most):
        raise UsageError(f"{name} cannot be {value}", f"give 0 to {most}")
    if name not in _RATIOS and value != int(value):
        raise UsageError(f"{name} cannot be {value}", "give a whole number")
    if name.endswith("_bytes") and 0 < value < _FEWEST_BYTES:
        raise UsageError(f"{name} cannot be {value}", f"give 0, or {_FEWEST_BYTES} or more")
