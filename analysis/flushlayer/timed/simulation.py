"""The timed model: an event-driven simulation of bios, a layer, its medium and the disks.

A write enters the layer page by page. Overwriting a page that is dirty in the layer saves a disk
write. A page that is not in the layer takes a slot; if no slot is free, another page is evicted,
and if that page is dirty, the bio waits until it is on the disk. Then the medium writes the bio,
and the bio is complete, because the layer is persistent. The medium serves reads of pages that the
layer holds. If a page of a read is not in the layer, the disk serves the whole read, in one queue
with destages. A flush commits the layer and waits for the disk's volatile cache if it is not empty.
Destages and FUA writes bypass that cache. Requests that reach a device at one time may be merged
before they start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.devices import Device
from tracer.analysis.flushlayer.timed import events, service
from tracer.analysis.flushlayer.timed.destage import Destage, watermarks
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.electronic import electronic
from tracer.analysis.flushlayer.timed.outcome import DeviceUse, LayerUse, Outcome
from tracer.analysis.flushlayer.timed.queueing import push
from tracer.analysis.flushlayer.timed.replay import chain_up
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.timed.residency import PAGE_SECTORS
from tracer.analysis.flushlayer.timed.state import (
    ARRIVE,
    BIO,
    CLOCK,
    EPOCH,
    EVENT,
    FLUSH,
    LAYER,
    LINE,
    PAGE,
    PART,
    READ,
    WRITE,
    Rows,
    World,
)
from tracer.digits import show_digits
from tracer.probes.errors import BadTrace, UsageError

Buffer = Literal["write-only", "read-write", "sync-only"]
Replay = Literal["open", "closed"]

_EVENTS_A_TURN = 1 << 20
_LONGEST_NS = 2.0**61
_MERGED_PARTS = 512
_MOST_LISTS = 1 << 20
"""Most lists of dirty pages: each layer has one for each disk."""


@dataclass(frozen=True)
class Layer:
    """A flush layer in front of the disks."""

    capacity: int
    """Pages; 0: no layer."""
    medium: Device
    destage: Destage = field(default_factory=Destage)
    buffer: Buffer = "write-only"
    """Bios that enter the layer. write-only: every write; read-write: every write and read;
    sync-only: writes that somebody waits for."""
    shares: tuple[float, ...] | None = None
    """Relative shares of the capacity: one partition for each tenant, by its code. The bios of a
    tenant without a share bypass the layer. A page stays in the partition of the tenant whose
    access brought it in. None: one layer for all."""
    flushes_pass: bool = False
    """True if a flush goes on to the disk: a file system that keeps its journal in the layer
    flushes both. A layer below the file system does not need it."""
    evicted: NDArray[np.int32] | None = None
    """The page that each access evicts by another replacement policy; -1: none. The policy decides
    in the order of the recording. A page leaves only a full layer. If the policy's page is not in
    it (closed replay may change the order, a partition may hold a page that another tenant
    brought in), the least recently used page leaves. None: always the least recently used page,
    in the order of the simulation."""

    def capacities(self) -> list[int]:
        """Returns the pages of each partition; the first ones get the remainder."""
        if self.shares is None:
            return [self.capacity]
        whole = sum(self.shares)
        pages = [math.floor(self.capacity * (share / whole)) for share in self.shares]
        for i in range(self.capacity - sum(pages)):
            pages[i % len(pages)] += 1
        return pages

    def check(self, requests: Requests) -> None:
        """Raises UsageError if a setting is out of range or does not fit the requests."""
        if isinstance(self.capacity, float) or not 0 <= self.capacity < 1 << 40:
            raise UsageError(f"a capacity of {self.capacity} pages cannot be", "give 0 or more")
        if self.buffer not in ("write-only", "read-write", "sync-only"):
            raise UsageError(
                f"there is no buffer {self.buffer!r}", "known: write-only, read-write, sync-only"
            )
        if self.buffer == "sync-only" and requests.waited is None:
            raise UsageError(
                "the input does not show which writes somebody waits for",
                "choose buffer write-only",
            )
        if self.shares is not None and not (
            0 < len(self.shares) <= 1 << 10
            and all(math.isfinite(s) and s > 0 for s in self.shares)
            and math.isfinite(sum(self.shares))
        ):
            raise UsageError("the shares of the tenants are not all above 0", "give e.g. 1, 1, 2")
        if self.evicted is not None and (
            len(self.evicted) != len(requests.page)
            or (
                len(self.evicted)
                and not -1 <= self.evicted.min() <= self.evicted.max() < requests.unique
            )
        ):
            raise UsageError(
                "the evictions do not fit the page accesses", "make them from these page accesses"
            )


def is_ready() -> bool:
    """Returns whether the event loop is loaded; the first simulation compiles it or reads it."""
    return bool(getattr(events.run, "signatures", True))


def simulate(
    requests: Requests,
    disks: Disk | Sequence[Disk],
    layer: Layer | None = None,
    replay: Replay = "open",
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Simulates bios on disks, with or without a layer in front of them.

    `disks`: one model for all device codes, or one for each code. Open replay: bios arrive at
    their recorded times. Closed replay: see replay.py; it needs the columns chain and done.
    `progress` is called from time to time with the number of completed bios. Memory: about 150
    bytes a bio and 90 bytes a distinct page. Raises UsageError for settings that do not fit the
    requests, BadTrace for bios that wait for one another.
    """
    layer = None if layer is None or layer.capacity == 0 else layer
    if layer is not None:
        layer.check(requests)
    codes = int(requests.device.max(initial=-1)) + 1
    chosen = [disks] * max(1, codes) if isinstance(disks, Disk) else list(disks)
    if len(chosen) < codes:
        raise UsageError(
            f"{len(chosen)} disks for {codes} devices", "give one disk for each device"
        )
    world = _world(requests, chosen, layer, replay)
    while True:
        why = events.run(world, _EVENTS_A_TURN)
        if progress is not None:
            progress(int(world.clock[0].done))
        if why == events.FINISHED_ALL:
            break
        if why == events.NO_ROOM:
            world = _roomier(world)
    if world.clock[0].done != len(requests):
        raise BadTrace(
            f"{len(requests) - int(world.clock[0].done)} bios wait for one another",
            "the input is damaged",
        )
    return _outcome(requests, world, chosen, layer)


def _world(requests: Requests, disks: list[Disk], layer: Layer | None, replay: Replay) -> World:
    capacities = [] if layer is None else layer.capacities()
    count, devices = len(capacities), len(disks) + 1
    if count * devices > _MOST_LISTS:
        raise UsageError(
            f"{count} layers in front of {devices - 1} disks are too many", "give fewer shares"
        )
    clock = np.zeros(1, CLOCK)
    clock[0].now = requests.ts[0] if len(requests) else 0
    clock[0].reads_enter = layer is not None and layer.buffer == "read-write"
    clock[0].flushes_pass = layer is None or layer.flushes_pass
    bio = np.zeros(len(requests), BIO)
    _fill_bios(bio, requests, layer, count)

    model = np.zeros((devices, service.MODEL))
    for code, disk in enumerate(disks):
        model[code] = disk.model(requests.span_sectors(code))
    if layer is not None:
        model[-1] = electronic(layer.medium)
    else:
        model[-1, service.SERVERS] = 1
    _check_length(requests, model)
    line = np.zeros(devices, LINE)
    line["head"] = line["tail"] = -1
    line["free"] = model[:, service.SERVERS]
    line["epoch"] = line["oldest_epoch"] = np.arange(devices)
    line["last_host"] = clock[0].now
    line["changed"] = clock[0].now
    epoch = np.zeros(devices + int((requests.op == FLUSH).sum()), EPOCH)
    epoch["flush"] = epoch["next"] = -1
    clock[0].epochs = devices

    layers = np.zeros(count, LAYER)
    layers["capacity"] = capacities
    destage = Destage() if layer is None else layer.destage
    watermarks(destage, layers)
    heads = count * devices  # one for each layer, and one for each of its disks
    slot = np.zeros(requests.unique + heads if count else 0, PAGE)
    slot["home"] = slot["flight"] = -1
    for links in ("newer", "older", "dirty_newer", "dirty_older"):
        slot[links][requests.unique :] = np.arange(requests.unique, requests.unique + heads)

    chains = 0
    if replay == "closed":
        if requests.chain is None or requests.done is None:
            raise UsageError("closed replay needs issuers and completions", "choose open replay")
        clock[0].closed = 1
        chains = chain_up(bio, requests.chain, requests.done)
    elif replay != "open":
        raise UsageError(f"there is no replay {replay!r}", "known: open, closed")
    biggest = int(requests.pages.max(initial=0))
    clock[0].part_margin = biggest + 4 + count * destage.outstanding
    clock[0].heap_margin = int(line["free"].sum()) + chains + 3 * count + devices + _MERGED_PARTS
    first = np.flatnonzero(bio["blockers"] == 0) if replay == "closed" else np.zeros(0, np.int64)
    heap = np.zeros(len(first) + 2 * int(clock[0].heap_margin), EVENT)
    world = World(
        page=requests.page,
        ahead=np.zeros(0, np.int32) if requests.ahead is None else requests.ahead,
        within=np.zeros(0, np.uint8) if requests.within is None else requests.within,
        following=_following(requests)
        if layer is not None and layer.destage.runs != "none"
        else np.zeros(0, np.int32),
        evicted=np.zeros(0, np.int32)
        if layer is None or layer.evicted is None
        else np.require(layer.evicted, np.int32, ["C", "W"]),
        bio=bio,
        slot=slot,
        layer=layers,
        part=np.zeros(0, PART),
        line=line,
        epoch=epoch,
        heap=heap,
        clock=clock,
        touched=np.zeros(devices, np.int64),
        tenant=np.zeros(_tenants(requests) + 1, np.int64),
        model=model,
        area=np.zeros(devices),
        rule=destage.rule(),
    )
    clock[0].free_part = -1
    for m in first:
        push(world, int(bio[m].ts), ARRIVE, int(m))
    return _roomier(world)


def _following(requests: Requests) -> NDArray[np.int32]:
    """Returns the page that follows each page on its disk, where it was first; -1: none."""
    bio = np.repeat(np.arange(len(requests)), requests.pages)
    within = np.arange(len(bio)) - np.repeat(
        np.cumsum(requests.pages) - requests.pages, requests.pages
    )
    access = requests.first[bio] + within
    if requests.ahead is None or requests.within is None:
        begins = (requests.sector[bio] // PAGE_SECTORS + within) * PAGE_SECTORS
    else:
        begins = requests.sector[bio] + requests.ahead[access] - requests.within[access]
    pages, at = np.unique(requests.page[access], return_index=True)
    device, place = requests.device[bio[at]], begins[at]
    order = np.lexsort((place, device))
    found = np.full(requests.unique, -1, np.int32)
    here, then = order[:-1], order[1:]
    next_to = (device[then] == device[here]) & (place[then] == place[here] + PAGE_SECTORS)
    found[pages[here[next_to]]] = pages[then[next_to]]
    return found


def _tenants(requests: Requests) -> int:
    """Returns the number of known tenants."""
    return 0 if requests.tenant is None else int(requests.tenant.max(initial=-1)) + 1


def _fill_bios(bio: Rows, requests: Requests, layer: Layer | None, count: int) -> None:
    bio["ts"] = requests.ts
    bio["sector"] = requests.sector
    bio["sectors"] = requests.lengths()
    bio["pages"] = requests.pages
    bio["first"] = requests.first
    bio["device"] = requests.device
    bio["op"] = requests.op
    if requests.fua is not None:
        bio["fua"] = requests.fua
    if requests.tenant is not None:
        # The last row stands for the unknown tenant.
        bio["tenant"] = np.where(requests.tenant < 0, _tenants(requests), requests.tenant)
    bio["home_layer"] = -1
    if layer is None:
        return
    if layer.destage.waiting_phases and requests.phase is not None:
        bio["waits"] = np.isin(requests.phase, layer.destage.waiting_phases)
    enters = requests.op == WRITE
    if layer.buffer == "sync-only" and requests.waited is not None:
        enters &= requests.waited
    if layer.buffer == "read-write":
        enters |= requests.op == READ
    home = np.zeros(len(requests), np.int64)
    if layer.shares is not None and requests.tenant is not None:
        home[:] = requests.tenant
        enters &= (home >= 0) & (home < count)
        enters &= np.array([*layer.capacities(), 0])[np.clip(home, -1, count)] > 0
    bio["home_layer"] = np.where(enters, home, -1)


def _check_length(requests: Requests, model: NDArray[np.float64]) -> None:
    """Raises UsageError if the simulated times could exceed the range of int64."""
    work = 0.0
    total_bytes = float(len(requests.page)) * PAGE_SECTORS * service.SECTOR_BYTES
    grained = total_bytes + float(len(requests.page)) * model[:, service.GRAIN].max()
    for row in model:
        each = float(row[service.OVERHEAD_NS])
        each += float(row[service.LATENCY_NS : service.LATENCY_NS + 2].max())
        each += float(row[service.FLUSH_NS])
        each += float(row[service.GAP_NS : service.GAP_NS + 2].max()) + float(
            row[service.PERIOD_NS]
        )
        seeks = slice(service.SEEK_TRACK, service.SEEK_SLOPE + 2)
        each += float(row[seeks].sum())
        work += each * 2 * (len(requests) + len(requests.page))
        work += grained * 2 * float(row[service.NS_PER_BYTE : service.NS_PER_BYTE + 2].max())
    if work > _LONGEST_NS:
        raise UsageError(
            f"the devices would work for up to {show_digits(work / 1e9)} s",
            "check the times and rates of the devices",
        )


def _roomier(world: World) -> World:
    """Returns the same world with more room for parts and events."""
    have = len(world.part)
    more = max(have, 1024, 2 * int(world.clock[0].part_margin))
    part = np.zeros(have + more, PART)
    part[:have] = world.part
    part["behind"][have:] = np.arange(have + 1, have + more + 1)
    part["behind"][-1] = world.clock[0].free_part
    world.clock[0].free_part = have
    world.clock[0].free_parts += more
    heap = np.zeros(2 * len(world.heap), EVENT)
    heap[: len(world.heap)] = world.heap
    return world._replace(part=part, heap=heap)


def _outcome(requests: Requests, world: World, disks: list[Disk], layer: Layer | None) -> Outcome:
    names = [disk.device.name for disk in disks] + ([] if layer is None else [layer.medium.name])
    begin = int(requests.ts[0]) if len(requests) else 0
    end = int(world.clock[0].last_end) if len(requests) else 0
    return Outcome(
        arrived_ns=world.bio["arrived"].copy(),
        response_ns=world.bio["finished"] - world.bio["arrived"],
        hits=world.bio["hits"].astype(np.int32),
        evictions=world.bio["evictions"].astype(np.int32),
        begin_ns=begin,
        end_ns=end,
        disks=tuple(
            DeviceUse.of(name, world.line[i], world.area[i], world.model[i], end - begin)
            for i, name in enumerate(names[: len(disks)])
        ),
        medium=None
        if layer is None
        else DeviceUse.of(names[-1], world.line[-1], world.area[-1], world.model[-1], end - begin),
        layers=tuple(LayerUse.of(row) for row in world.layer),
    )
