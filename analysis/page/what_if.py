"""The page of a what-if: one simulated flush layer, or a sweep of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from tracer.analysis.figures import what_if as draw
from tracer.analysis.flushlayer.answers.question import serves
from tracer.analysis.flushlayer.trace.accesses import PATH_NOT_KNOWN
from tracer.analysis.flushlayer.trace.writers import TARGETS
from tracer.analysis.page.base import TEMPLATES, render
from tracer.analysis.page.summary import Tile
from tracer.analysis.page.tables import PageTable, page_table
from tracer.sizes import show_bound, show_share, show_size

_TEMPLATE = "what_if.html.j2"
_PAPERS = (0.77, 0.82, 0.90)
_SHARES = ("capacity_share", "utilisation", "mean", "p50", "p95", "p99", "p99_9", "p99.9", "max")
"""Columns of shares (0 to 1) without a unit in their names; improvements are shares, too."""


@dataclass(frozen=True)
class Part:
    """A figure, a table, or both, under a title; `about`: a note on it."""

    id: str
    title: str
    about: str
    figure: go.Figure | None
    table: PageTable | None


def answer_page(name: str, facts: dict[str, Any]) -> str:
    """Returns the self-contained page of one question's facts (analysis/flushlayer/answers)."""
    parts = []
    if serves(facts):
        parts = {"paper": _paper, "curve": _curve, "timed": _timed}[facts["model"]](facts)
        reasons = pd.DataFrame(
            {"reason": list(facts["by_reason"]), "pages": facts["by_reason"].values()}
        )
        parts.append(Part("reasons", "Pages written, by reason", "", None, _table(reasons)))
    return _page(
        f"A flush layer of {facts['medium']} in front of {facts['disk']}",
        [name, f"model {facts['model']}", f"{facts['policy']}, {facts['buffer']}",
         f"pages identified by {facts['identity']}"],
        _tiles(facts),
        parts,
        facts["assumptions"],
    )  # fmt: skip


def sweep_page(name: str, frame: pd.DataFrame) -> str:
    """Returns the page of a sweep's table."""
    parts = []
    for column, title in (
        ("improvement", "Saved"), ("improvement_with_drain", "Saved, with the final drain"),
    ):  # fmt: skip
        if column in frame and len(frame):
            parts.append(
                Part(
                    column,
                    title,
                    "Share of the write time.",
                    draw.sweep_heat(frame, column, ""),
                    None,
                )
            )
    parts.append(Part("rows", "Every simulation", "", None, _table(frame)))
    tiles = [Tile("simulations", f"{len(frame):,}", "all combinations of the file's values")]
    return _page(f"What if: {name}", [], tiles, parts, frame.attrs.get("assumptions", []))


def _table(frame: pd.DataFrame) -> PageTable:
    """Returns a frame as a table in ms, MiB and per cent, with the columns of names first."""
    named = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    shown = frame[[*named, *(column for column in frame if column not in named)]].copy()
    for column in shown.columns:
        if column in named:
            continue
        if column.endswith("_ns"):
            shown[column] /= 1e6
        elif column.endswith("_bytes"):
            shown[column] /= 1 << 20
        elif column in _SHARES or column.startswith("improvement"):
            shown[column] *= 100
    return page_table("", shown.rename(columns=_readable), "")


def _readable(column: str) -> str:
    if column.startswith("p99_9"):
        return _readable(column.replace("p99_9", "p99.9"))
    if column in _SHARES or column.startswith("improvement"):
        return f"{column}_percent"
    for ending, unit in (("_ns", "_ms"), ("_bytes", "_mib")):
        if column.endswith(ending):
            return column.removesuffix(ending) + unit
    return column


def _page(
    title: str, subjects: list[str], tiles: list[Tile], parts: list[Part], assumptions: list[str]
) -> str:
    return render(
        _TEMPLATE,
        TEMPLATES,
        figures=any(part.figure is not None for part in parts),
        name=title,
        subjects=subjects,
        tiles=tiles,
        parts=parts,
        assumptions=assumptions,
    )


def _tiles(facts: dict[str, Any]) -> list[Tile]:
    found = facts["writers"]
    tiles = [
        Tile("written", f"{facts['requests']:,}", f"page write-backs of {found['taken']}"),
        Tile("distinct", f"{facts['unique_pages']:,}", "pages among them"),
    ]
    if found["taken"] == TARGETS:
        about = f"of {found['pages']:,} pages: not certainly written by targets"
        tiles.append(Tile("left out", show_share(found["left_out_share"]), about))
    if "capacity_bytes" in facts:
        tiles.append(Tile("layer", show_size(facts["capacity_bytes"]), "its size"))
    for key, about in (
        ("improvement", "of the write time, without the final drain"),
        ("improvement_with_drain", "of the write time, with the final drain"),
        ("most", "at most, at any size, without the final drain"),
        ("most_with_drain", "at most, at any size, with the final drain"),
    ):
        if isinstance(facts.get(key), float):
            tiles.append(Tile("saved", show_share(facts[key]), about))
    if facts.get("reads"):
        about = f"of {facts['reads']:,} page reads that missed the page cache"
        tiles.append(Tile("served", show_share(facts["read_hits"] / facts["reads"]), about))
    most = facts.get("ceiling")
    if most:
        tiles.append(
            Tile(
                "at most",
                show_bound(most["share"], 2).removeprefix("at most "),
                f"of {most['what']} can be saved by any layer",
            )
        )
    return tiles


def _paper(facts: dict[str, Any]) -> list[Part]:
    identities = pd.DataFrame(
        [
            {
                "pages by": name,
                "page write-backs": found["requests"],
                "distinct pages": found["unique_pages"],
                "not mapped": found["mapping"].get("not mapped"),
                "path not known": found["mapping"].get(PATH_NOT_KNOWN),
                "improvement": found["improvement"],
                "improvement_with_drain": found["improvement_with_drain"],
            }
            for name, found in facts["identities"].items()
        ]
    )
    needed = pd.DataFrame(
        [
            {"series": f"by {name}", "improvement": row["improvement"],
             "capacity_bytes": None if row["capacity_pages"] is None
             else row["capacity_pages"] * 4096}
            for name, found in facts["identities"].items()
            for row in found["needed"]
        ]
    )  # fmt: skip
    curves = pd.concat(
        pd.DataFrame(found["curve"]).assign(series=f"by {name}")
        for name, found in facts["identities"].items()
    )
    sweep = pd.DataFrame(facts["sweep"])
    every_size = all(found["every_size"] for found in facts["identities"].values())
    return [
        Part("capacities", "By the size of the layer",
             f"Table: pages identified by {facts['identity']}.",
             draw.by_capacity(curves, _PAPERS), _table(sweep)),
        Part("identities", "By the identity of pages", facts["papers_number"], None,
             _table(identities)),
        Part("needed", "Size needed for the paper's improvements",
             f"Without the final drain.{_least(every_size)}",
             draw.by_improvement(needed), None),
    ]  # fmt: skip


def _curve(facts: dict[str, Any]) -> list[Part]:
    curve = pd.DataFrame(facts["curve"]).assign(series=facts["policy"])
    needed = pd.DataFrame(facts["needed"])
    exact = "Exact at every size." if facts["exact"] else "Only simulated sizes are shown."
    return [
        Part("curve", "By the size of the layer", exact, draw.by_capacity(curve, _PAPERS), None),
        Part("needed", "Size needed by improvement",
             f"Empty: no size reaches it.{_least(facts['every_size'])}", None, _table(needed)),
    ]  # fmt: skip


def _least(every_size: bool) -> str:
    return (
        "" if every_size else " The least of the sizes that were simulated: a smaller one may do."
    )


def _timed(facts: dict[str, Any]) -> list[Part]:
    latency = pd.DataFrame(facts["latency"])
    writes = latency[latency["op"] == "write"]
    named = [
        f"{replay} replay, {'with' if layer else 'without'} the layer"
        for replay, layer in zip(writes["replay"], writes["layer"], strict=True)
    ]
    found = [
        Part("latency", "Response times of writes", "Open replay: a request arrives at its recorded"
             " time. Closed replay: it arrives after the request that it waited for, with the"
             " recorded delay.",
             draw.latencies(writes.assign(series=named)), _table(latency)),
        Part("groups", "Saved, by phase, tenant and reason", "Closed replay.", None,
             _table(pd.DataFrame(facts["improvement"]))),
        Part("gap", "Open and closed replay", "The effect of the old disk's feedback.", None,
             _table(pd.DataFrame(facts["replay_gap"]))),
        Part("devices", "Devices", "", None, _table(pd.DataFrame(facts["devices"]))),
    ]  # fmt: skip
    if facts["sync_calls"]:
        about = "As recorded, and simulated without and with the layer."
        calls = _table(pd.DataFrame(facts["sync_calls"]))
        found.insert(1, Part("calls", "Calls that make data durable", about, None, calls))
    return found
