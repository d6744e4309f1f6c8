"""Text output of `tracer simulate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tracer.analysis.findings.finding import seconds
from tracer.analysis.flushlayer.answers.question import serves
from tracer.analysis.flushlayer.trace.accesses import PATH_NOT_KNOWN
from tracer.analysis.flushlayer.trace.writers import TARGETS
from tracer.cli.output import console, print_table, safe, show
from tracer.digits import show_digits
from tracer.sizes import show_bound, show_part, show_share, show_size

if TYPE_CHECKING:
    import pandas as pd

_MS = 1e6
_SWEEP = {
    "capacity_share": "share of U",
    "capacity_pages": "pages",
    "disk_writes": "D",
    "improvement": "improvement",
    "improvement_with_drain": "with drain",
}
_LATENCY = ("replay", "layer", "op", "requests", "mean", "p50", "p95", "p99", "p99.9", "max")
_TIMES = ("mean_ns", "p50_ns", "p95_ns", "p99_ns", "p99_9_ns", "max_ns")


def print_answer(name: str, facts: dict[str, Any], devices: Sequence[str] = ()) -> None:
    """Prints the facts that one model returns (analysis/flushlayer/answers).

    `devices`: the only devices whose write-backs count; none: all.
    """
    out = console()
    out.print(safe(f"{name}: a flush layer of {facts['medium']} in front of {facts['disk']}"))
    out.print()
    if not serves(facts):
        whose = " of the targets" if facts["writers"]["taken"] == TARGETS else ""
        there = f" to {', '.join(devices)}" if devices else ""
        out.print(
            safe(
                f"This trace has no page write-backs{whose}{there}: a flush layer would have"
                " nothing to do."
            )
        )
        _left_out(out, facts)
    else:
        whose = facts["writers"]["taken"]
        out.print(f"  N  page write-backs            {show(facts['requests'])} (of {whose})")
        _left_out(out, facts)
        out.print(f"  U  distinct pages              {show(facts['unique_pages'])}")
        {"paper": _paper, "curve": _curve, "timed": _timed}[facts["model"]](out, facts)
        if facts["requests"]:
            reasons = ", ".join(f"{why} {show(n)}" for why, n in facts["by_reason"].items())
            out.print(safe(f"  Page write-backs by reason: {reasons}."))
    _assumptions(out, facts["assumptions"])


def _assumptions(out: Console, said: Sequence[str]) -> None:
    out.print("\nAssumptions")
    for note in said:
        out.print(safe(f"  - {note}"))


def _left_out(out: Console, facts: dict[str, Any]) -> None:
    found = facts["writers"]
    if found["taken"] == TARGETS:
        out.print(f"     of journal and metadata     {show(_theirs(found))}")
        left = show_part(found["left_out"], found["pages"])
        out.print(f"     of others, left out         {left}")


def _theirs(found: dict[str, Any]) -> int:
    of_all = found["journal_and_metadata"]
    return int(of_all["target"] + of_all["shared"])


def _capacity(out: Console, facts: dict[str, Any]) -> None:
    pages, size = show(facts["capacity_pages"]), show_size(facts["capacity_bytes"])
    out.print(f"     capacity                    {pages} pages ({size})")


def _paper(out: Console, facts: dict[str, Any]) -> None:
    _capacity(out, facts)
    out.print(f"  D  pages that reach the disk   {show(facts['disk_writes'])}")
    out.print(f"     improvement                 {show(facts['improvement'])}")
    out.print(f"     with the final drain        {show(facts['improvement_with_drain'])}")
    sweep = _SWEEP
    if facts["reads"] is not None:
        out.print(f"     page reads                  {show(facts['reads'])}")
        share = facts["read_hits"] / facts["reads"] if facts["reads"] else None
        served = "" if share is None else f" ({show_share(share)})"
        out.print(f"     served by the layer         {show(facts['read_hits'])}{served}")
        sweep = {**_SWEEP, "read_hits": "reads served"}
    out.print()
    rows = [[row[c] for c in sweep] for row in facts["sweep"]]
    print_table(out, "Other capacities", list(sweep.values()), rows)
    columns = ["pages by", "N", "U", "not mapped", "path not known", "improvement", "with drain"]
    rows = [
        [
            identity,
            found["requests"],
            found["unique_pages"],
            found["mapping"].get("not mapped"),
            found["mapping"].get(PATH_NOT_KNOWN),
            found["improvement"],
            found["improvement_with_drain"],
        ]
        for identity, found in facts["identities"].items()
    ]
    print_table(out, "The same layer, by the identity of pages", columns, rows)
    out.print(safe(facts["papers_number"]))
    out.print()


def _curve(out: Console, facts: dict[str, Any]) -> None:
    out.print()
    step = max(1, len(facts["curve"]) // 12)
    rows = [
        [
            row["capacity_pages"],
            show_size(row["capacity_bytes"]),
            row["disk_writes"],
            row["improvement"],
            row["improvement_with_drain"],
        ]
        for row in [*facts["curve"][:-1:step], facts["curve"][-1]]
    ]
    columns = ["pages", "size", "D", "improvement", "with drain"]
    print_table(out, "Improvement by capacity", columns, rows)
    rows = [
        [
            row["improvement"],
            *(
                _needed(row[key], facts["every_size"])
                for key in ("capacity_bytes", "capacity_bytes_with_drain")
            ),
        ]
        for row in facts["needed"]
    ]
    print_table(
        out, "Capacity that an improvement needs", ["improvement", "capacity", "with drain"], rows
    )


def _needed(size: int | None, every_size: bool) -> str:
    if size is None:
        return "not reachable"
    return show_size(size) if every_size else f"at most {show_size(size)}"


def _timed(out: Console, facts: dict[str, Any]) -> None:
    _capacity(out, facts)
    out.print(f"     pages written to the disk   {show(facts['disk_pages'])}")
    out.print(f"     without the layer           {show(facts['disk_pages_without'])}")
    around = sum(part["around"] for part in facts["layers"])
    if around:
        out.print(f"     written around a full layer {show(around)}")
    out.print()
    rows = [
        [row["replay"], row["layer"], row["op"], row["requests"]]
        + [row[time] / _MS for time in _TIMES]
        for row in facts["latency"]
    ]
    print_table(out, "Response times, ms", list(_LATENCY), rows)
    rows = [
        [row["by"], row["name"], row["requests"], *(row[c] for c in ("mean", "p50", "p99"))]
        for row in facts["improvement"]
    ]
    columns = ["by", "", "requests", "mean", "p50", "p99"]
    print_table(out, "Improvement, closed replay", columns, rows, left=("by", ""))
    if facts["sync_calls"]:
        rows = [
            [row["layer"], row["calls"]]
            + [row[time] / _MS for time in ("mean_ns", "p50_ns", "p99_ns")]
            for row in facts["sync_calls"]
        ]
        columns = ["layer", "calls", "mean", "p50", "p99"]
        print_table(out, "Calls that make data durable, ms", columns, rows)
    rows = [
        [row["replay"], row["layer"], row["name"], row["requests"], row["utilisation"],
         row["mean_in_system"]]
        for row in facts["devices"]
    ]  # fmt: skip
    columns = ["replay", "layer", "device", "requests", "utilisation", "mean in system"]
    print_table(out, "Devices", columns, rows)
    _worn(out, facts)
    _ceiling(out, facts["ceiling"])


def _worn(out: Console, facts: dict[str, Any]) -> None:
    wear = facts["wear"]
    if wear is not None:
        years = wear["lifetime_years"]
        lasts = "not known: the catalogue gives no endurance"
        if years is not None:
            low, high = years
            if low is None:
                lasts = "unlimited"
            elif high is None:
                lasts = f"at least {show_digits(low)} years with even wear"
            else:
                lasts = f"{show_digits(low)} to {show_digits(high)} years with even wear"
        cycles = f"{show_digits(wear['cycles_per_year'])} writes to each cell per year"
        out.print(safe(f"  The medium: {cycles}; lifetime {lasts}."))
    joules = facts["energy_j"]
    said = (
        "not known: the catalogue gives no power" if joules is None else f"{show_digits(joules)} J"
    )
    out.print(safe(f"  Energy of the medium: {said}."))


def _ceiling(out: Console, found: dict[str, Any] | None) -> None:
    if found is None:
        out.print(
            "  The training time that it can save is not known: the trace has no calls of a job."
        )
        return
    out.print(
        safe(
            f"  Any layer can save {show_bound(found['share'], 2)} of {found['what']}: in"
            f" {seconds(found['total_s'])} of {seconds(found['length_s'])}, a thread may have"
            " waited for writes."
        )
    )
    for kind, waited_s in found["by_kind"].items():
        if waited_s:
            out.print(safe(f"    {seconds(waited_s)} {found['kinds'][kind]}"))
    for said in found["left_out"]:
        out.print(safe(f"    The bound does not include: {said}"))


_SHOWN_ROWS = 40
_SHOWN = {
    "trace": "trace",
    "identity": "by",
    "policy": "policy",
    "buffer": "buffer",
    "medium": "medium",
    "disk": "disk",
    "destage": "destage",
    "replay": "replay",
    "dirty_ratio": "ratio",
    "dirty_background_ratio": "background",
    "dirty_bytes": "bytes",
    "dirty_background_bytes": "background bytes",
    "dirty_expire_centisecs": "expire",
    "dirty_writeback_centisecs": "every",
    "bound": "at",
    "capacity_bytes": "size",
    "improvement": "saved",
    "improvement_with_drain": "drained",
    "mean_ns": "mean ms",
    "p99_ns": "p99 ms",
}
_RESULTS = ("improvement", "improvement_with_drain", "mean_ns", "p99_ns")


def print_sweep(name: str, frame: pd.DataFrame) -> None:
    """Prints the first rows of a sweep's table: its results, and what differs between rows."""
    out = console()
    of = [
        column
        for column in _SHOWN
        if column in frame and (column in _RESULTS or len(frame) < 2 or frame[column].nunique() > 1)
    ]
    rows = [
        [_cell(column, row[column]) for column in of]
        for row in frame[of].head(_SHOWN_ROWS).to_dict("records")
    ]
    print_table(out, f"{name}: {len(frame):,} simulations", [_SHOWN[c] for c in of], rows)
    told = frame[["writers", "left_out_share"]].drop_duplicates()
    for writers, share in zip(told["writers"], told["left_out_share"].astype(float), strict=True):
        said = "not known" if math.isnan(share) else show_share(share)
        out.print(f"Pages of {writers} count. Share of all written pages that is left out: {said}.")
    if len(frame) > _SHOWN_ROWS:
        out.print(f"Only the first {_SHOWN_ROWS} are shown. --json has all rows and columns.")
    _assumptions(out, frame.attrs.get("assumptions", []))


def _cell(column: str, value: Any) -> Any:
    if column == "capacity_bytes":
        return show_size(value)
    return value / _MS if column.endswith("_ns") else value
