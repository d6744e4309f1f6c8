"""The answer of the model `timed`: the effect of a layer on latencies, devices and sync calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.findings.ceiling import ceiling
from tracer.analysis.flushlayer.answers.question import Question, about_input, input_facts
from tracer.analysis.flushlayer.curves.every_capacity import PAGE_BYTES
from tracer.analysis.flushlayer.policies import outcomes
from tracer.analysis.flushlayer.timed import Layer, Replay, electronic, is_ready, nvm, simulate
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.outcome import Outcome, improvement, replay_gap, results
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.timed.state import WRITE
from tracer.analysis.flushlayer.trace.accesses import Accesses
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.analysis.flushlayer.trace.sync_calls import sync_calls
from tracer.analysis.flushlayer.trace.writers import TARGETS
from tracer.analysis.views.disks.wait_times import KINDS
from tracer.store.devices import Devices
from tracer.store.manifest import duration_s
from tracer.store.trace import Trace

GROUPS = ("phase", "tenant", "reason")
OTHER = "other"
"""The tenant of writes without a tenant, in a partitioned layer."""
FILLS = (
    "the medium writes the pages that reads bring in once the read is complete; nothing waits for"
    " it, and reads find these pages in the layer even before"
)
"""The assumption of a layer that keeps what is read."""
_MOST_NAMED = 8
_QUANTILES = (0.5, 0.99)


def answer(
    question: Question,
    trace: Trace,
    accesses: Accesses,
    destage: Destage,
    partitioned: bool = False,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Returns the facts; `accesses` has bios, with reads and flushes.

    Keys: requests (N), those of `input_facts`, destage (the policy's name), capacity_pages,
    capacity_bytes; latency: rows of `results` for both replays, with and without the layer (columns
    replay, layer, op, then those of `results`); improvement: rows of `improvement`, closed replay,
    for all bios and for each phase, tenant and reason (columns by, name, ...); replay_gap;
    sync_calls (columns layer: recorded, without or with, calls, mean_ns, p50_ns, p99_ns:
    percentiles as in `results`); devices (DeviceUse of each, by replay and layer); layers (LayerUse
    of the layer, or of each tenant's partition, closed replay; tenant: None for the whole layer);
    disk_pages (with the layer) and disk_pages_without; wear (lifetime_years: None if there is no
    upper bound or no wear); energy_j; ceiling; assumptions. None: not known.
    """
    requests = recorded_requests(trace, accesses)
    names = {} if accesses.bios is None else accesses.bios.names
    known = len(names.get("tenant", []))
    disk = Disk(question.disk)
    shares = None
    if partitioned:
        requests, names = _everybody_a_tenant(requests, names)
        shares = (1.0,) * len(names["tenant"]) or None
    destage = of_job(destage, requests)
    layer = layer_of(question, accesses, destage, shares)
    runs: dict[tuple[str, bool], Outcome] = {}
    if progress is not None and not is_ready():
        progress("compiling the event loop; the first time takes half a minute")
    for replay in get_args(Replay):
        for has_layer in (False, True):
            if progress is not None and is_ready():
                progress(f"{replay} replay, {'with' if has_layer else 'without'} the layer")
            runs[replay, has_layer] = simulate(requests, disk, layer if has_layer else None, replay)
    one, base = runs["closed", True], runs["closed", False]
    return {
        "requests": sum(accesses.by_reason.values()),
        **input_facts(accesses),
        "destage": destage.called,
        "capacity_pages": layer.capacity,
        "capacity_bytes": layer.capacity * PAGE_BYTES,
        "latency": _rows(
            results(requests, run, ["op"]).assign(replay=replay, layer=has_layer)
            for (replay, has_layer), run in runs.items()
        ),
        "improvement": _rows(_improvements(requests, one, base, names)),
        "replay_gap": _rows([replay_gap(requests, runs["open", True], one)]),
        "sync_calls": _sync_calls(trace, requests, base, one),
        "devices": [
            {"replay": replay, "layer": has_layer, **dataclasses.asdict(use)}
            for (replay, has_layer), run in runs.items()
            for use in (*run.disks, *([run.medium] if run.medium else []))
        ],
        "layers": [
            {"tenant": tenant, **dataclasses.asdict(use)}
            for tenant, use in zip(names["tenant"] if shares else [None], one.layers, strict=False)
        ],
        "disk_pages": one.disk_pages,
        "disk_pages_without": base.disk_pages,
        **_medium(question, layer, one, duration_s(trace.manifest) or 0.0),
        "ceiling": _ceiling(trace),
        "assumptions": [
            question.capacity.said(accesses.unique_written),
            *disk.assumptions(),
            *electronic.assumptions(question.medium),
            f"{question.buffer} buffer, {question.policy}",
            f"destaging, {destage.called}: {destage.assumption()}",
            *([FILLS] if question.reads else []),
            "closed replay: a bio comes its recorded think time after the bios that its process"
            " waited for; open replay: a bio comes at its recorded time, which includes the old"
            " disk's feedback",
            *not_completed(requests),
            *order_of_policies([question.policy], shares is not None),
            *on_one_disk(trace, accesses),
            *([_parts(names["tenant"], known, layer.capacities())] if shares else []),
            *without_others(accesses),
            *about_input(accesses),
        ],
    }


def of_job(destage: Destage, requests: Requests) -> Destage:
    """Returns the policy; adds to `phase` the phases in which this job waited for the disk."""
    if destage.when != "phase" or destage.waiting_phases:
        return destage
    return dataclasses.replace(destage, waiting_phases=requests.waiting_phases())


def layer_of(
    question: Question,
    accesses: Accesses,
    destage: Destage,
    shares: tuple[float, ...] | None = None,
) -> Layer:
    """Returns the layer of a question.

    The evictions of a policy other than LRU are those of the simulation without time. With
    `shares`, it has a simulation for each tenant.
    """
    capacity = question.capacity.of(accesses.unique_written)
    buffer: Any = question.buffer
    layer = Layer(capacity, question.medium, destage, buffer, shares)
    if question.policy == "lru" or not capacity:
        return layer
    return dataclasses.replace(layer, evicted=_evicted(question, accesses, layer))


def _evicted(question: Question, accesses: Accesses, layer: Layer) -> NDArray[np.int32]:
    """Returns the page that each access evicts; -1: none."""
    op = question.operations(accesses)
    bios = accesses.bios
    if layer.shares is None or bios is None:
        made = outcomes(question.policy, accesses.page, accesses.unique, layer.capacity, op)
        return made.victim
    tenant = bios.tenant[bios.of_pages()]
    tenant = np.where(tenant < 0, len(bios.names["tenant"]), tenant)
    found = np.full(len(accesses), -1, np.int32)
    for code, capacity in enumerate(layer.capacities()):
        mine = np.flatnonzero(tenant == code)
        if capacity and len(mine):
            ops = None if op is None else op[mine]
            made = outcomes(question.policy, accesses.page[mine], accesses.unique, capacity, ops)
            found[mine] = made.victim
    return found


def _everybody_a_tenant(
    requests: Requests, names: Mapping[str, list[str]]
) -> tuple[Requests, dict[str, list[str]]]:
    """Returns the requests and the names of their tenants; requests without a tenant go to OTHER
    if there is such a write."""
    tenants = names.get("tenant", [])
    found = dict(names) | {"tenant": [*tenants]}
    tenant = requests.tenant
    if tenant is None or not (tenant[requests.op == WRITE] < 0).any():
        return requests, found
    called = OTHER if OTHER not in tenants else f"{OTHER} (no tenant)"
    found["tenant"].append(called)
    return dataclasses.replace(
        requests, tenant=np.where(tenant < 0, len(tenants), tenant).astype(np.int16)
    ), found


def _parts(tenants: list[str], known: int, pages: list[int]) -> str:
    """Returns a sentence on the parts of a layer: of so many known tenants, and of other writes.

    `pages`: those of each part; the first parts may have one more than the others.
    """
    more = sum(part > pages[-1] for part in pages)
    equal = "" if more else "equal "
    said = f"the layer is divided into {len(tenants)} {equal}parts, for {_named(tenants)}"
    if more:
        size = f"{pages[0]} page{'' if pages[0] == 1 else 's'}"
        first = f"the first has {size}" if more == 1 else f"the first {more} have {size} each"
        said += f": {first}, the others {pages[-1]}"
    for other in tenants[known:]:
        said += (
            f"; {other} has the writes without a tenant: the journal, metadata, files of several"
            " tenants or of an unknown one"
        )
    return said


def not_completed(requests: Requests) -> list[str]:
    """Returns a sentence on the bios that nobody waits for in closed replay, since no end is known.

    A bio to device mapper, md or bcache has no request of its own.
    """
    count = 0 if requests.done is None else int((requests.done < 0).sum())
    if not count:
        return []
    return [
        f"the completion of {count:,} of {len(requests):,} bios is not known (device mapper, md and"
        " bcache hand bios on): in closed replay, nobody waits for these"
    ]


def order_of_policies(policies: Sequence[str], partitioned: bool = False) -> list[str]:
    """Returns a sentence on the policies that choose pages in the order of the recording."""
    others = [policy for policy in dict.fromkeys(policies) if policy != "lru"]
    if not others:
        return []
    alone = ", by the accesses of each part's tenant alone" if partitioned else ""
    why = ["closed replay changes the order", "the destage policy takes pages out"]
    if partitioned:
        why.append("another tenant's part has it, or another tenant wrote it past the layer")
    return [
        f"{_named(others)}: chooses the pages that leave the layer in the order of the"
        f" recording{alone}; if such a page is not there ({'; '.join(why)}), the least recently"
        " used page leaves instead"
    ]


def on_one_disk(trace: Trace, accesses: Accesses) -> list[str]:
    """Returns sentences on devices that lie on one disk: the model gives each a disk of its own."""
    devices = Devices(trace.manifest)
    bios = accesses.bios
    on: dict[str, list[str]] = {}
    for dev in [] if bios is None else bios.names["device"]:
        for disk in devices.layers(dev):
            if not devices.below(disk):
                on.setdefault(disk, []).append(dev)
    shared: dict[tuple[str, ...], list[str]] = {}
    for disk, devs in on.items():
        if len(devs) > 1:
            shared.setdefault(tuple(devs), []).append(disk)
    return [
        f"{_named(devs)} lie on {_named(disks)}, but each has a disk of its own in the simulation,"
        " so none of them waits for another"
        + ("" if devices.partitions.keys() & devs else f" (--dev {disks[0]} simulates that disk)")
        for devs, disks in shared.items()
    ]


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def without_others(accesses: Accesses) -> list[str]:
    """Returns a sentence if the recording has requests that the simulation leaves out."""
    found = accesses.writers
    if found is None or found.taken != TARGETS or not found.left_out:
        return []
    return ["the disk serves only the pages that count: reads and writes of others take no time"]


def _improvements(
    requests: Requests, one: Outcome, base: Outcome, names: Mapping[str, list[str]]
) -> list[pd.DataFrame]:
    frames = [improvement(requests, one, base).assign(by="all", name="all")]
    for group in GROUPS:
        frame = improvement(requests, one, base, [group])
        called = [names[group][code] if code >= 0 else "not known" for code in frame[group]]
        frames.append(frame.drop(columns=group).assign(by=group, name=called))
    return frames


def _sync_calls(
    trace: Trace, requests: Requests, base: Outcome, one: Outcome
) -> list[dict[str, Any]]:
    if "syscalls" not in trace.tables or "processes" not in trace.tables:
        return []
    found = []
    for what, run, column in (
        ("recorded", base, "recorded_ns"),
        ("without", base, "simulated_ns"),
        ("with", one, "simulated_ns"),
    ):
        times = sync_calls(trace, requests, run)[column].to_numpy(np.int64)
        if len(times):
            at = np.quantile(times, _QUANTILES, method="inverted_cdf")
            row = {"layer": what, "calls": len(times), "mean_ns": float(times.mean())}
            found.append(row | {"p50_ns": int(at[0]), "p99_ns": int(at[1])})
    return found


def _medium(question: Question, layer: Layer, run: Outcome, least_s: float) -> dict[str, Any]:
    """Returns the keys wear and energy_j. The layer is written to in `least_s` or in the run."""
    seconds = max(least_s, (run.end_ns - run.begin_ns) / 1e9)
    if run.medium is None or seconds <= 0:
        return {"wear": None, "energy_j": None}
    worn = nvm.wear(question.medium, layer.capacity * PAGE_BYTES, run.medium.bytes_written, seconds)
    said = dataclasses.asdict(worn)
    if worn.lifetime_years is not None:
        said["lifetime_years"] = [y if math.isfinite(y) else None for y in worn.lifetime_years]
    return {
        "wear": said,
        "energy_j": nvm.energy_j(question.medium, run.medium),
    }


def _ceiling(trace: Trace) -> dict[str, Any] | None:
    if not {"processes", "syscalls"} <= set(trace.tables):
        return None
    found = ceiling(trace)
    if found is None:
        return None
    return dataclasses.asdict(found) | {"share": found.share, "kinds": KINDS}


def _rows(frames: Any) -> list[dict[str, Any]]:
    """Returns the rows of frames with values that JSON can hold: NaN becomes None."""
    rows = pd.concat(list(frames), ignore_index=True).to_dict("records")
    return [{str(key): _plain(value) for key, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value
