"""Destaging: a layer writes dirty pages to the disk before it needs their slots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer import devices
from tracer.analysis.flushlayer.devices import Device
from tracer.analysis.flushlayer.timed.queueing import push
from tracer.analysis.flushlayer.timed.residency import oldest_dirty, send
from tracer.analysis.flushlayer.timed.state import AGE, COMMIT, IDLE, RULE
from tracer.probes.compiled import compiled_lean
from tracer.probes.errors import UsageError

When = Literal["lazy", "eager", "watermark", "idle", "age", "phase"]

DOCS: dict[When, str] = {
    "lazy": "only to make room",
    "eager": "at once",
    "watermark": "from a high share of dirty pages down to a low share",
    "idle": "after the disk has had no host request for a while",
    "age": "when their last write is old enough",
    "phase": "while no tenant is in a phase that waits for the disk, or above the high watermark",
}

Runs = Literal["none", "places", "slots"]
"""Pages that go along with a destaged page: none, those at the places that follow it, or those of
them whose slots follow, too."""

Renews = Literal["all", "committed", "none"]

_RUNS: dict[Runs, str] = {
    "none": "",
    "places": "the dirty pages that follow a destaged one on the disk go along",
    "slots": "the dirty pages that follow a destaged one go along if their slots follow, too",
}
_RENEWS: dict[Renews, str] = {
    "all": "",
    "committed": "a page that is written again before it is committed keeps its turn",
    "none": "a dirty page that is written again keeps its turn",
}

MOST_IN_A_RUN = 256
"""Pages of the longest run: the kernel's BIO_MAX_VECS."""
_SLOTS = get_args(Runs).index("slots")

_LAZY, _EAGER, _WATERMARK, _IDLE, _AGE, _PHASE = range(6)
_CODES: dict[str, int] = {name: code for code, name in enumerate(get_args(When))}

_LONGEST_NS = 1e18


@dataclass(frozen=True)
class Destage:
    """A destage policy. It destages the least recently written page first; the page stays, clean.

    outstanding: most pages in flight to the disk at once [assumed: 64]. high, low: destaging
    starts and stops at these shares of the capacity; pages that are dirty and not in flight count.
    Only a committed page can be destaged. A page is committed after autocommit_pages writes, after
    autocommit_ns, or by a flush or FUA write; with autocommit_pages 0, at once. "watermark" commits
    what it has to destage, as dm-writecache does (drivers/md/dm-writecache.c
    writecache_writeback()).
    """

    when: When = "lazy"
    outstanding: int = 64
    high: float = 0.5
    low: float = 0.45
    idle_ns: int = 100_000_000
    age_ns: int = 30_000_000_000
    autocommit_pages: int = 0
    autocommit_ns: int = 1_000_000_000
    runs: Runs = "none"
    """"watermark": the pages that follow a destaged page on the disk go along, however young they
    are: all of them, or those whose slots follow one another, too, as after one long write."""
    around: bool = False
    """True if a write that finds too few free slots goes to the disk, instead of waiting for
    room. "watermark" pauses until pause_ns after the last one is complete."""
    flushes: bool = False
    """True if each flush goes to the disk, too, and "watermark" pauses after it as well."""
    pause_ns: int = 0
    renews: Renews = "all"
    """Dirty pages that become the newest as they are written again. The others keep their place
    and stay committed: they were overwritten in their slot."""
    batch: int = 0
    """"watermark": pages after which no more are sent until all of them are on the disk. 0: no
    batches."""
    leaves: bool = False
    """True if a page leaves the layer once it is on the disk; else it stays, clean."""
    waiting_phases: tuple[int, ...] = ()
    """Codes of the phases in which the job waits for the disk (Requests.waiting_phases). Empty:
    "phase" is the same as "eager"."""
    below: bool = False
    """True if "watermark" stops one page below the low watermark, and rounds both as dm-writecache
    does (drivers/md/dm-writecache.c writecache_ctr()); else it stops at the low watermark."""
    name: str = ""
    """The name of a preset."""

    def __post_init__(self) -> None:
        """Raises UsageError, with the name of the setting, if a value is out of range."""
        if self.when not in DOCS:
            raise UsageError(
                f"there is no destage policy {self.when!r}", "known: " + ", ".join(DOCS)
            )
        for name, value, most in (
            ("high", self.high, 1.0),
            ("low", self.low, 1.0),
            ("outstanding", self.outstanding, 1 << 20),
            ("idle_ns", self.idle_ns, _LONGEST_NS),
            ("age_ns", self.age_ns, _LONGEST_NS),
            ("autocommit_pages", self.autocommit_pages, 1 << 40),
            ("autocommit_ns", self.autocommit_ns, _LONGEST_NS),
            ("pause_ns", self.pause_ns, _LONGEST_NS),
            ("batch", self.batch, 1 << 20),
        ):
            if not (math.isfinite(value) and 0 <= value <= most):
                raise UsageError(
                    f"the destage setting {name} cannot be {value}", f"give 0 to {most:g}"
                )
        if self.outstanding < 1:
            raise UsageError("the destage setting outstanding cannot be 0", "give 1 or more")
        if self.low > self.high:
            raise UsageError(
                f"the low watermark {self.low:g} is above the high one {self.high:g}",
                "give a low watermark up to the high one",
            )

    def rule(self) -> NDArray[np.void]:
        """Returns the policy as one row of RULE, for the compiled loops."""
        rule = np.zeros(1, RULE)
        rule["when"] = _CODES[self.when]
        rule["outstanding"] = self.outstanding
        rule["age_ns"] = self.age_ns
        rule["idle_ns"] = self.idle_ns
        rule["commit_pages"] = self.autocommit_pages
        rule["commit_ns"] = self.autocommit_ns
        rule["runs"] = get_args(Runs).index(self.runs)
        rule["around"] = self.around
        rule["pause_ns"] = self.pause_ns
        rule["flushes"] = self.flushes
        rule["renews"] = get_args(Renews).index(self.renews)
        rule["batch"] = self.batch
        rule["leaves"] = self.leaves
        return rule

    @property
    def called(self) -> str:
        """The name of the preset, or of the policy in DOCS."""
        return self.name or self.when

    def assumption(self) -> str:
        """Returns a sentence that describes the policy, with each rule that is not the default."""
        low = f"{'below ' if self.below else ''}{self.low:.0%}"
        detail = {
            "watermark": f" ({self.high:.0%} to {low})",
            "idle": f" ({self.idle_ns / 1e6:g} ms)",
            "age": f" ({self.age_ns / 1e9:g} s)",
            "phase": f" ({self.high:.0%})",
        }.get(self.when, "")
        return "; ".join([f"dirty pages are destaged {DOCS[self.when]}{detail}", *self._more()])

    def _more(self) -> list[str]:
        """Returns the rules that are not those of Destage()."""
        said = {
            f"at most {self.outstanding:,} pages at once": self.outstanding != Destage.outstanding,
            f"a page is committed after {self.autocommit_pages:,} writes, after"
            f" {self.autocommit_ns / 1e9:g} s, or by a flush or FUA write": self.autocommit_pages,
            _RUNS[self.runs]: self.runs != Destage.runs,
            f"{self.batch:,} pages are sent at a time, the next ones once these are on the disk":
                self.batch,
            "a write that finds too few free slots goes to the disk": self.around,
            "each flush goes to the disk, too": self.flushes,
            f"destaging pauses until {self.pause_ns / 1e9:g} s after the last bio that went around"
            " the layer": self.pause_ns,
            _RENEWS[self.renews]: self.renews != Destage.renews,
            "a page leaves the layer once it is on the disk": self.leaves,
        }  # fmt: skip
        return [rule for rule, differs in said.items() if differs]


def policy_called(name: str) -> Destage:
    """Returns the policy with this name: one of DOCS with default settings, or a catalogue preset.

    Raises UsageError, with the known names, if there is no such policy.
    """
    for when in DOCS:
        if name == when:
            return Destage(when)
    if name in names():
        return preset(devices.find_device(name, "destage"))
    raise UsageError(f"there is no destage policy {name!r}", f"known: {', '.join(names())}")


def names() -> list[str]:
    """Returns the names of all policies: those of DOCS, and the presets of the catalogue."""
    return [*DOCS, *devices.names("destage")]


def preset(device: Device) -> Destage:
    """Returns the watermark policy of a catalogue entry of kind destage, e.g. dm-writecache-pmem.

    The entry has no limit of pages in flight (writeback_jobs); the model allows 1024 [assumed].
    The rules are those of drivers/md/dm-writecache.c, for an SSD if the entry has pause_writeback.
    """
    ssd = bool(device.value("pause_writeback"))
    return Destage(
        "watermark",
        outstanding=1024,
        high=device.value("high_watermark") or 0.5,
        low=device.value("low_watermark") or 0.0,
        autocommit_pages=int(device.value("autocommit_blocks") or 0),
        autocommit_ns=int(device.value("autocommit_time") or 0),
        # On an SSD, a page goes along only if it lies behind the other there, too. The pages are
        # in memory otherwise.
        runs="slots" if ssd else "places",
        around=ssd,
        # num_flush_bios = 2: writecache_map_flush() hands the second on, and writecache_map()
        # tracks it like a write that goes around.
        flushes=ssd,
        pause_ns=int(device.value("pause_writeback") or 0),
        # writecache_map_write(): memory keeps a committed block until the next commit, so that the
        # new data takes another.
        renews="none" if ssd else "committed",
        # writecache_writeback(): WRITEBACK_LATENCY; dm_kcopyd_client_flush() waits for copies.
        batch=64 if ssd else 0,
        leaves=True,
        below=True,
        name=device.name,
    )


@compiled_lean
def _committed(w: Any, layer: int, page: int) -> bool:
    return bool(not w.rule[0].commit_pages or w.slot[page].number < w.layer[layer].committed)


@compiled_lean
def _next(w: Any, layer: int, disk: int) -> int:
    """Returns the page to destage next, or -1 if the oldest dirty page is not committed or none
    is dirty."""
    if w.layer[layer].dirties == 0:
        return -1
    page = oldest_dirty(w, layer, disk)
    return int(page) if page >= 0 and _committed(w, layer, page) else -1


@compiled_lean
def _due(w: Any, layer: int, page: int) -> bool:
    """Returns whether the policy destages this page now."""
    when, layers = w.rule[0].when, w.layer
    if when == _EAGER:
        return True
    if when == _AGE:
        return bool(w.slot[page].written + w.rule[0].age_ns <= w.clock[0].now)
    if when == _PHASE and w.clock[0].waiting_tenants == 0:
        return True
    if when not in (_WATERMARK, _PHASE):
        return False
    # A page in flight is as good as clean: without this, a slow disk would get all dirty pages.
    if layers[layer].dirties >= layers[layer].high:
        layers[layer].active = 1
    elif layers[layer].dirties <= layers[layer].low:
        layers[layer].active = 0
    if layers[layer].active and w.clock[0].now < layers[layer].paused:
        if not layers[layer].age_armed:
            layers[layer].age_armed = 1
            push(w, layers[layer].paused, AGE, layer)
        return False
    return bool(layers[layer].active and layers[layer].passing == 0)


@compiled_lean
def destage(w: Any, layer: int) -> None:
    """Sends the pages of one layer that the policy destages now."""
    when = w.rule[0].when
    if when in (_LAZY, _IDLE) or w.clock[0].done == w.bio.shape[0]:
        return
    layers, batch = w.layer, w.rule[0].batch
    if batch and layers[layer].flying > 0:
        return
    while layers[layer].flying < w.rule[0].outstanding:
        if batch and layers[layer].flying >= batch:
            return
        page = oldest_dirty(w, layer, -1)
        if page < 0 or (when != _WATERMARK and not _committed(w, layer, page)):
            return
        if not _due(w, layer, page):
            if when == _AGE and not layers[layer].age_armed:
                layers[layer].age_armed = 1
                push(w, w.slot[page].written + w.rule[0].age_ns, AGE, layer)
            return
        if not _committed(w, layer, page):
            layers[layer].committed = layers[layer].writes
        send(w, page)
        if w.rule[0].runs:
            _send_run(w, layer, page)


@compiled_lean
def _send_run(w: Any, layer: int, page: int) -> None:
    """Sends the dirty, committed pages that follow a page on its disk."""
    slot = w.slot
    for _ in range(MOST_IN_A_RUN - 1):
        after: Any = np.int64(w.following[page])
        if (
            after < 0
            or slot[after].home != layer
            or not slot[after].dirty
            or slot[after].disk != slot[page].disk
            or not _committed(w, layer, after)
            or (w.rule[0].runs == _SLOTS and slot[after].taken != slot[page].taken + 1)
            or w.layer[layer].flying >= w.rule[0].outstanding
        ):
            return
        page = after
        send(w, page)


@compiled_lean
def destage_idle(w: Any, disk: int) -> None:
    """Sends dirty pages if the disk has been idle for long enough; if not, arms a later check."""
    line, clock = w.line, w.clock[0]
    if w.rule[0].when != _IDLE or line[disk].in_system > 0 or clock.done == w.bio.shape[0]:
        return
    waiting = False
    for layer in range(w.layer.shape[0]):
        waiting = waiting or _next(w, layer, disk) >= 0
    if not waiting:
        return
    at = line[disk].last_host + w.rule[0].idle_ns
    if at > clock.now:
        if not line[disk].idle_armed:
            line[disk].idle_armed = 1
            push(w, at, IDLE, disk)
        return
    for layer in range(w.layer.shape[0]):
        while w.layer[layer].flying < w.rule[0].outstanding:
            page = _next(w, layer, disk)
            if page < 0:
                break
            send(w, page)


@compiled_lean
def written(w: Any, layer: int, page: int) -> None:
    """Commits by number of writes, or arms the commit timer, after a bio wrote to a layer.

    `page` is a page that the bio wrote. Then the policy destages.
    """
    layers, rule = w.layer, w.rule[0]
    if rule.commit_pages:
        if layers[layer].writes - layers[layer].committed >= rule.commit_pages:
            layers[layer].committed = layers[layer].writes
        elif not layers[layer].commit_armed:
            layers[layer].commit_armed = 1
            push(w, w.clock[0].now + rule.commit_ns, COMMIT, layer)
    if rule.when == _IDLE:
        destage_idle(w, w.slot[page].disk)
    else:
        destage(w, layer)


@compiled_lean
def commit(w: Any) -> None:
    """Commits all pages written to all layers, as a flush does."""
    for layer in range(w.layer.shape[0]):
        w.layer[layer].committed = w.layer[layer].writes
        destage(w, layer)


def watermarks(policy: Destage, layers: NDArray[np.void]) -> None:
    """Writes a policy's watermarks, in pages, into the rows of the layers."""
    high, low = Fraction(str(float(policy.high))), Fraction(str(float(policy.low)))
    for row in layers:
        pages = int(row["capacity"])
        start, stop = math.ceil(high * pages), math.floor(low * pages)
        if policy.below:
            half = Fraction(1, 2)
            start = pages - math.floor((1 - high) * pages + half)
            stop = pages - math.floor((1 - low) * pages + half) - 1
        row["high"], row["low"] = max(1, start), max(0, stop)
