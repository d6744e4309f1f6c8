"""The columns of every extract and the kinds of their values; kept extracts are checked by them."""

from __future__ import annotations

from functools import cache
from types import GenericAlias
from typing import Any, Literal

from pydantic import with_config
from typing_extensions import TypedDict

from tracer.analysis.studies.facts import Count, Long, Number, Text, Whole
from tracer.store.checked import STRICT, Listed

_T, _N, _W, _B = Long | None, Number | None, Whole, bool
"""The kinds: text or null, number or null, integer, boolean."""

_SPREAD = ("mean_s", "std_s", "min_s", "p50_s", "p90_s", "p99_s", "max_s")

COLUMNS: dict[str, dict[str, Any]] = {
    "counters": {"event": Text, "role": Text, "value": _N},
    "call_chains": {
        "event": Text, "chain": _T, "count": _W, "share": _N, "writes": Whole | None,
        "write_share": _N, "other_disks": _N, "comm": _T, "stacks": _W, "path": _T,
    },
    "fault_causes": {
        "comm": _T, "file": _T, "symbol": _T, "faults": _W, "minor": _W, "major": _W, "percent": _N,
    },
    "writeback_reasons": {"reason": Text, "writebacks": _W, "ratio": _N, "wakes": _N},
    "writeback_intervals": {
        "between": Text, "reason": Text, "intervals": _W, **dict.fromkeys(_SPREAD, _N),
    },
    "interval_quantiles": {"between": Text, "share": Number, "interval_s": _N},
    "page_heat": {
        "from_s": Number, "to_s": Number, "first_page": _W, "last_page": _W, "writebacks": _W,
    },
    "step_times": {
        "stage": _T, "part": Text, "steps": _W,
        **dict.fromkeys(("mean_ms", "p50_ms", "p99_ms", "share"), _N),
    },
    "epochs": {
        "epoch": _W, "jobs": _W,
        **dict.fromkeys(
            ("steps", "epoch_s", "stall_s", "compute_s", "overhead_s", "read_bytes",
             "page_cache_bytes", "residency_percent", "hit_percent", "again_percent"),
            _N,
        ),
    },
    "usage": {
        "name": Text, "instance": _T, "unit": _T, "samples": _W, "share": Number, "value": _N,
    },
    "energy": {
        "source": Text, "instance": _T, "part": _B, "method": _T, "samples": _W,
        **dict.fromkeys(("duration_s", "longest_s", "energy_j", "mean_w"), _N),
    },
    "layer_curve": {
        "identity": Text, "writes": Text, "written": Count, "distinct": Count, "fell_back": Count,
        "capacity_pages": _W, "capacity_share": Number, "improvement": Number,
        "improvement_with_drain": Number,
    },
}  # fmt: skip
"""The columns by extract, named as in `tracer.analysis.studies.extracts.MAKERS`."""


class Facts(TypedDict):
    """The facts about the machine of a run and the losses of its trace."""

    kernel: Text | None
    machine: Text | None
    cpu: Text | None
    cpus: Count | None
    memory_bytes: Count | None
    disk: Text
    vm: Text
    backend: Text | None
    tool: Text
    duration_s: Number | None
    complete: bool
    lost_events: Count | None
    loss_windows: Count | None
    loss_unknown: Count | None


class _Missing(TypedDict):
    why: Long


@cache
def kept_kind() -> Any:
    """Returns the class of extracts.json: a version, the facts, each table or why it is missing."""
    typed: Any = TypedDict
    tables = {name: _table(name, columns) | _Missing for name, columns in COLUMNS.items()}
    kind = typed("Kept", {"version": int, "facts": Facts, "tables": typed("Tables", tables)})
    return with_config(STRICT)(kind)


def _table(name: str, columns: dict[str, Any]) -> Any:
    typed: Any = TypedDict
    names = GenericAlias(tuple, tuple(Literal[column] for column in columns))
    row = GenericAlias(tuple, tuple(columns.values()))
    return typed(name, {"columns": names, "rows": Listed[row]})  # type: ignore[valid-type]
