"""A comparison for a terminal, in at most 80 columns."""

from __future__ import annotations

from typing import Any

from tracer.analysis.compare.comparison import Comparison
from tracer.analysis.compare.readable import readable
from tracer.analysis.compare.verdicts import CHANGED, MISSING, NOISE, UNTOLD
from tracer.analysis.report.tables import records
from tracer.cli.output import console, print_table, safe, show

_HEADS = {
    CHANGED: "Changed, most important first",
    UNTOLD: "Too few runs to test: may be noise",
}
_MOST_NAMES = 12
_MOST_GROUPS = 3
"""Most groups that fit side by side in 80 columns."""
_EQUAL = 0.005


def print_comparison(found: Comparison, most: int) -> None:
    """Prints the groups, the notes, and at most `most` measures of each verdict.

    Measures inside the noise are only named.
    """
    out = console()
    base, *others = found.grouping.groups
    out.print(safe(f"Groups, {found.grouping.how}:"), style="bold")
    for group in found.grouping.groups:
        names = ", ".join(found.runs[number].identity.id for number in group.traces[:4])
        more = f" and {len(group.traces) - 4} more" if len(group.traces) > 4 else ""
        said = " (the base)" if group is base else ""
        out.print(safe(f"  {group.name}{said}: {group.runs}, {names}{more}"))
    for note in found.notes:
        out.print(safe(f"Note: {note}."))
    out.print()
    rows = records(readable(found.rows))
    for verdict, title in _HEADS.items():
        chosen = [row for row in rows if row["verdict"] == verdict and not _about_equal(row)]
        _print_rows(chosen, rows, [group.name for group in others], title, most)
    noise = [row for row in rows if row["verdict"] == NOISE]
    if noise:
        out.print(safe(f"Inside the noise: {len(noise)}."), style="bold")
        out.print(safe(f"  {_listed(noise)}"))
        out.print()
    same = [row for row in rows if _about_equal(row)]
    if same:
        out.print(safe(f"Equal to within 0.5 %: {len(same)}."), style="bold")
        out.print(safe(f"  {_listed(same)}"))
        out.print()
    missing = [row for row in rows if row["verdict"] == MISSING]
    if missing:
        out.print(safe(f"Without a ratio: {len(missing)}."), style="bold")
        for why, of in list(_by(missing, "why").items())[:_MOST_NAMES]:
            out.print(safe(f"  {why}: {_listed(of)}"))
        out.print()
    if found.tests:
        out.print(
            safe(
                f"{found.tests} ratios were tested. A ratio counts as changed if its p, corrected"
                " for the number of tests (Benjamini-Hochberg), is below 5 %. In brackets: 95 %"
                " intervals over runs. ~: inside the noise. !: events were lost."
            ),
            style="italic",
        )


def _print_rows(
    chosen: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    groups: list[str],
    title: str,
    most: int,
) -> None:
    """Prints a table with one line per measure and one ratio per group."""
    measures = list(dict.fromkeys(_measure(row) for row in chosen))
    if not measures:
        return
    by_measure = {
        name: {row["group"]: row for row in of}
        for name, of in _by([{**row, "name": _measure(row)} for row in rows], "name").items()
    }
    alone = len(groups) == 1
    shown = groups[:_MOST_GROUPS]
    cells = []
    for name in measures[:most]:
        of = by_measure[name]
        first = next(iter(of.values()))
        line: list[Any] = [name, first["base_mean"]]
        line += [first["mean"]] if alone else []
        cells.append(line + [_ratio(of.get(group)) for group in shown])
    heads = ["measure", "base", *(["here", "ratio"] if alone else shown)]
    left_out = len(measures) - most
    notes = [f"{left_out} more with --top or --json."] if left_out > 0 else []
    if len(shown) < len(groups):
        more = len(groups) - len(shown)
        notes.append(f"{more} more group{'s' if more > 1 else ''} with --json.")
    left = [name for name in heads if name not in ("base", "here")]
    print_table(console(), title, heads, cells, left=left, note=" ".join(notes))


def _measure(row: dict[str, Any]) -> str:
    return f"{row['topic']}: {row['measure']}, {row['unit']}"


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None or row["ratio"] is None:
        return str(show(None))
    said = str(show(row["ratio"]))
    low, high = row["ratio_low"], row["ratio_high"]
    if low is not None or high is not None:
        ends = [str(show(end)) for end in (low, high)]
        said += f" [{ends[0]}, {ends[1]}]"
    marks = ("~" if row["verdict"] == NOISE else "") + ("!" if row["lossy"] else "")
    return f"{said} {marks}".strip()


def _about_equal(row: dict[str, Any]) -> bool:
    """Returns whether the runs are too few for a test, and the ratio is so close to 1."""
    is_untold = row["verdict"] == UNTOLD and row["ratio"] is not None
    return is_untold and abs(row["ratio"] - 1) < _EQUAL


def _listed(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(f"{row['topic']}: {row['measure']}" for row in rows))
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _by(rows: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row[key]), []).append(row)
    return found
