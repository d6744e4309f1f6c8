"""Many simulations from one file: every combination of the values that it lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from os import sched_getaffinity
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tracer.analysis.flushlayer.answers.question import (
    Capacity,
    Question,
    about_gaps,
    about_input,
)
from tracer.analysis.flushlayer.answers.timed import (
    FILLS,
    layer_of,
    not_completed,
    of_job,
    on_one_disk,
    order_of_policies,
    without_others,
)
from tracer.analysis.flushlayer.curves.every_capacity import PAGE_BYTES, curve, improvements
from tracer.analysis.flushlayer.devices import Device, find_device
from tracer.analysis.flushlayer.timed import electronic, simulate
from tracer.analysis.flushlayer.timed.destage import policy_called
from tracer.analysis.flushlayer.timed.disk import Disk
from tracer.analysis.flushlayer.timed.nvm import wear
from tracer.analysis.flushlayer.timed.outcome import Outcome, results
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.toml_file import read_toml
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity, page_writebacks
from tracer.analysis.flushlayer.trace.page_count import check_pages
from tracer.analysis.flushlayer.trace.recorded import recorded_requests
from tracer.analysis.flushlayer.trace.writers import EVERYBODY
from tracer.probes.errors import UsageError
from tracer.sizes import parse_page_size
from tracer.store.manifest import duration_s
from tracer.store.trace import Trace

_MOST = 1_000_000
"""Most rows of a sweep's table."""

Knob = Literal[
    "dirty_ratio", "dirty_background_ratio", "dirty_bytes", "dirty_background_bytes",
    "dirty_expire_centisecs", "dirty_writeback_centisecs",
]  # fmt: skip
BOUNDS = ("least", "most")
"""Bounds of regenerated write-back: a page that was dirtied again while dirty left no event."""
Key = tuple[str, tuple[tuple[str, Any], ...]]
"""An identity, and values of the knobs. Empty: as recorded."""
_Identity = Literal["block", "file", "path", "index"]
Names = Annotated[list[str], Field(min_length=1, max_length=1000)]
Share = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Sweep(BaseModel):
    """The content of a sweep's file: lists of values, whose combinations are all simulated.

    capacity: sizes ("64M") or shares of the distinct pages written (0.25). Only the model `timed`
    takes `destage` and `replay`. `knobs`: values of vm.dirty_* at which write-back is regenerated;
    regenerated pages are identified by file and have no bios.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Literal["curve", "timed"] = "curve"
    capacity: Annotated[list[str | Share], Field(min_length=1, max_length=10_000)]
    medium: Names = ["pcm-paper"]
    disk: Names = ["hdd-paper"]
    policy: Names = ["lru"]
    buffer: Names = ["write-only"]
    identity: Annotated[list[_Identity], Field(min_length=1)] = ["block"]
    destage: Names = ["lazy"]
    replay: Annotated[list[Literal["open", "closed"]], Field(min_length=1)] = ["closed"]
    devices: str | None = None
    knobs: dict[Knob, Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]] = {}


@dataclass(frozen=True)
class Plan:
    """A checked sweep, with its devices and capacities."""

    sweep: Sweep
    media: tuple[Device, ...]
    disks: tuple[Device, ...]
    capacities: tuple[Capacity, ...]

    def settings(self) -> list[dict[str, Any]]:
        """Returns the combinations of the knobs, each with both BOUNDS; [{}] without knobs."""
        knobs = self.sweep.knobs
        if not knobs:
            return [{}]
        chosen = itertools.product(*knobs.values(), BOUNDS)
        return [dict(zip([*knobs, "bound"], one, strict=True)) for one in chosen]

    def parts(self) -> list[dict[str, Any]]:
        """Returns the parts that are simulated independently: a curve over all capacities, or one
        timed run."""
        sweep = self.sweep
        axes: dict[str, Sequence[Any]] = {
            "identity": sweep.identity,
            "buffer": sweep.buffer,
            "policy": sweep.policy,
            "knobs": self.settings(),
        }
        if sweep.model == "timed":
            axes |= {
                "medium": self.media,
                "disk": self.disks,
                "destage": sweep.destage,
                "replay": sweep.replay,
                "capacity": self.capacities,
            }
        return [
            dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*axes.values())
        ]


def load(path: Path) -> Plan:
    """Reads a sweep's file (TOML) and checks it.

    Raises UsageError, with file and key, for invalid content.
    """
    content = read_toml(path, "a file of a sweep", "docs/what-if.md")
    try:
        sweep = Sweep.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole file"
        said = first["msg"]
        if first["loc"][:1] == ("capacity",) and len(first["loc"]) > 1:
            where = f"capacity.{first['loc'][1]}"
            said = f"{str(first['input'])[:50]!r} is neither a size nor a share of 0 or more"
        raise UsageError(f"{path}: {where}: {said}", "see docs/what-if.md") from None
    extra = None if sweep.devices is None else path.parent / sweep.devices
    plan = Plan(
        sweep,
        tuple(find_device(name, "nvm", extra) for name in dict.fromkeys(sweep.medium)),
        tuple(find_device(name, "disk", extra) for name in dict.fromkeys(sweep.disk)),
        tuple(
            _capacity(path, given) if isinstance(given, str) else Capacity(share=given)
            for given in dict.fromkeys(sweep.capacity)
        ),
    )
    if sweep.knobs and (sweep.model, sweep.identity, sweep.buffer) != (
        "curve", ["file"], ["write-only"],
    ):  # fmt: skip
        raise UsageError(
            f"{path}: regenerated write-back (knobs) has no bios and identifies pages by file",
            'with knobs, give model = "curve", identity = ["file"], buffer = ["write-only"]',
        )
    unused = [key for key in ("destage", "replay") if key in sweep.model_fields_set]
    if sweep.model == "curve" and unused:
        raise UsageError(
            f"{path}: the model curve knows no time, so it has no {' and no '.join(unused)}",
            f'give model = "timed", or leave out {" and ".join(unused)}',
        )
    for name in sweep.destage:
        policy_called(name)
    for policy, buffer in itertools.product(sweep.policy, sweep.buffer):
        Question(plan.media[0], plan.disks[0], policy=policy, buffer=buffer)  # checks both names
    rows = len(plan.parts()) * (
        len(plan.media) * len(plan.disks) * len(plan.capacities) if sweep.model == "curve" else 1
    )
    if rows > _MOST:
        raise UsageError(
            f"{path} needs {rows} simulations, and {_MOST} is the limit", "list fewer values"
        )
    return plan


def _capacity(path: Path, size: str) -> Capacity:
    mend = 'write e.g. "64K", or a share of the distinct pages without quotation marks, e.g. 0.25'
    return Capacity(bytes=parse_page_size(size, PAGE_BYTES, f"{path}: capacity", mend))


def run(
    trace: Trace,
    plan: Plan,
    devices: list[str] | None = None,
    done: Callable[[int, int], None] | None = None,
    threads: int | None = None,
    share: tuple[int, int] = (0, 1),
    all_writers: bool = False,
) -> pd.DataFrame:
    """Returns a row for every combination; runs parts in parallel in `threads` (default: all CPUs).

    `share` (n, of): runs only the n-th of `of` consecutive shares of the parts, counted from 0.
    `done` is called with the number of parts done and of all. `all_writers` as for
    `page_writebacks`; regenerated write-back always includes all writers.

    Columns: model, writers (targets or everybody), left_out_share (share of all written pages that
    is left out; NaN: not known), identity, buffer, policy, medium, disk, capacity_pages,
    capacity_bytes. Model `curve`: requests (N), unique_pages (U), disk_writes, resident,
    improvement, improvement_with_drain, and each knob with `bound` (least or most). Model `timed`:
    destage, replay, mean_ns .. max_ns of writes, the same without the layer (base_...), improvement
    (of the mean), disk_pages, base_disk_pages, disk_utilisation, medium_utilisation,
    lifetime_low_years and lifetime_high_years. NaN: not known. Its `attrs["assumptions"]` are
    sentences on the recording and on what the models assume. Raises UsageError for knobs together
    with `devices`, and the errors of `check_pages`.
    """
    timed = plan.sweep.model == "timed"
    reads = timed or "read-write" in plan.sweep.buffer
    parts = plan.parts()
    number, of = share
    parts = parts[len(parts) * number // of : len(parts) * (number + 1) // of]
    said = about_gaps(trace)
    if plan.sweep.knobs:
        accesses, assumed = _regenerated(trace, parts, devices)
        said += assumed
    else:
        accesses = {
            (name, ()): page_writebacks(trace, devices, Identity(name), reads, timed, all_writers)
            for name in dict.fromkeys(part["identity"] for part in parts)
        }
    for found in accesses.values():
        said += about_input(found)
        said += [*on_one_disk(trace, found), *without_others(found)] if timed else []
    if timed:
        said += [sentence for disk in plan.disks for sentence in Disk(disk).assumptions()]
        said += [sentence for medium in plan.media for sentence in electronic.assumptions(medium)]
        said += [FILLS] if "read-write" in plan.sweep.buffer else []
        said += order_of_policies(plan.sweep.policy)
    one: Callable[[dict[str, Any]], list[dict[str, Any]]]
    if timed:
        asked: dict[str, Requests] = {
            name: recorded_requests(trace, found) for (name, _), found in accesses.items()
        }
        if "closed" in plan.sweep.replay:
            said += [sentence for one in asked.values() for sentence in not_completed(one)]
        disks = {disk.name: disk for disk in plan.disks}
        bases: dict[tuple[str, str, str], Outcome] = {
            (name, disk, replay): simulate(asked[name], Disk(disks[disk]), None, replay)
            for name, disk, replay in dict.fromkeys(
                (part["identity"], part["disk"].name, part["replay"]) for part in parts
            )
        }
        one = partial(_timed, accesses, asked, bases, duration_s(trace.manifest) or 0.0)
    else:
        one = partial(_curve, accesses, plan)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(threads or len(sched_getaffinity(0))) as pool:
        for number, made in enumerate(pool.map(one, parts), 1):
            rows += made
            if done is not None:
                done(number, len(parts))
    frame = pd.DataFrame(rows)
    frame.attrs["assumptions"] = list(dict.fromkeys(said))
    return frame


def _regenerated(
    trace: Trace, parts: Sequence[dict[str, Any]], devices: list[str] | None
) -> tuple[dict[Key, Accesses], list[str]]:
    """Returns the accesses of each setting of knobs, and what they assume."""
    from tracer.analysis.flushlayer.flusher import knobs
    from tracer.analysis.flushlayer.flusher.fixed_writes import prepared
    from tracer.analysis.flushlayer.flusher.regenerate import regenerate
    from tracer.analysis.flushlayer.flusher.regenerated_accesses import regenerated_accesses

    if devices:
        raise UsageError("write-back is regenerated for all devices together", "leave out --dev")
    found, fixed = prepared(trace)
    check_pages(trace, found.passed["pages"].to_numpy())
    now = knobs.recorded_knobs(trace)
    made: dict[Key, Accesses] = {}
    said = found.notes
    for setting in (part["knobs"] for part in parts):
        key = ("file", tuple(setting.items()))
        if key in made:
            continue
        changes = {name: value for name, value in setting.items() if name != "bound"}
        most = setting["bound"] == "most"
        writes = regenerate(found, fixed, now.changed(**changes), at_most=most)
        made[key] = regenerated_accesses(found, writes)
        said += writes.assumptions
    return made, said


def _curve(
    prepared: Mapping[Key, Accesses], plan: Plan, part: dict[str, Any]
) -> list[dict[str, Any]]:
    knobs = part["knobs"]
    accesses = prepared[part["identity"], tuple(knobs.items())]
    named = {key: value for key, value in part.items() if key != "knobs"} | knobs
    question = _question(plan.media[0], plan.disks[0], part)
    pages = [capacity.of(accesses.unique_written) for capacity in plan.capacities]
    found = curve(
        question.policy, accesses.page, accesses.unique, pages, question.operations(accesses), 1
    )
    rows: list[dict[str, Any]] = []
    for medium, disk in itertools.product(plan.media, plan.disks):
        frame = improvements(found, medium.write_ns, disk.write_ns)
        by_size = {row["capacity_pages"]: row for row in frame.to_dict("records")}
        rows += [
            {
                "model": "curve",
                **_whose(accesses),
                **named,
                "medium": medium.name,
                "disk": disk.name,
            }
            | {"requests": found.writes, "unique_pages": accesses.unique_written}
            | {str(key): value for key, value in by_size[size].items()}
            for size in pages
        ]
    return rows


def _whose(accesses: Accesses) -> dict[str, Any]:
    found = accesses.writers
    if found is None:
        return {"writers": EVERYBODY, "left_out_share": math.nan}
    return {"writers": found.taken, "left_out_share": found.left_out_share}


def _timed(
    prepared: Mapping[Key, Accesses],
    asked: Mapping[str, Requests],
    bases: Mapping[tuple[str, str, str], Outcome],
    least_s: float,
    part: dict[str, Any],
) -> list[dict[str, Any]]:
    identity = part["identity"]
    requests, base = asked[identity], bases[identity, part["disk"].name, part["replay"]]
    question = _question(part["medium"], part["disk"], part)
    layer = layer_of(
        question, prepared[identity, ()], of_job(policy_called(part["destage"]), requests)
    )
    capacity = layer.capacity
    found = simulate(requests, Disk(question.disk), layer, part["replay"])
    row: dict[str, Any] = {
        "model": "timed",
        **_whose(prepared[identity, ()]),
        **{key: part[key] for key in ("identity", "buffer", "policy")},
        "medium": question.medium.name,
        "disk": question.disk.name,
        "destage": part["destage"],
        "replay": part["replay"],
        "capacity_pages": capacity,
        "capacity_bytes": capacity * PAGE_BYTES,
    }
    times, without = _writes(requests, found), _writes(requests, base)
    row |= times | {f"base_{key}": value for key, value in without.items()}
    mean = without.get("mean_ns")
    row["improvement"] = 1 - times["mean_ns"] / mean if mean else math.nan
    row |= {"disk_pages": found.disk_pages, "base_disk_pages": base.disk_pages}
    busiest = [use.utilisation for use in found.disks if use.utilisation is not None]
    row["disk_utilisation"] = max(busiest, default=math.nan)
    row["medium_utilisation"] = math.nan
    row["lifetime_low_years"] = row["lifetime_high_years"] = math.nan
    seconds = max(least_s, (found.end_ns - found.begin_ns) / 1e9)
    if found.medium is not None and seconds > 0:
        used = found.medium.utilisation
        row["medium_utilisation"] = math.nan if used is None else used
        worn = wear(question.medium, capacity * PAGE_BYTES, found.medium.bytes_written, seconds)
        if worn.lifetime_years is not None:
            row["lifetime_low_years"], row["lifetime_high_years"] = worn.lifetime_years
    return [row]


def _writes(requests: Requests, outcome: Outcome) -> dict[str, Any]:
    frame = results(requests, outcome, ["op"])
    times = frame.loc[frame["op"] == "write"]
    columns = [name for name in frame.columns if name.endswith("_ns")]
    return {name: times[name].iloc[0] if len(times) else math.nan for name in columns}


def _question(medium: Device, disk: Device, part: dict[str, Any]) -> Question:
    return Question(
        medium,
        disk,
        part.get("capacity", Capacity()),
        policy=part["policy"],
        buffer=part["buffer"],
        identity=Identity(part["identity"]),
    )
