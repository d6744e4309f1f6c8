"""Tables of page faults: by process, and by task, file and function."""

from __future__ import annotations

import pandas as pd

from tracer.analysis.report.table import Column, MergedTable
from tracer.analysis.views.threads import make_threads, moment, owns
from tracer.store.trace import Trace

_KINDS = {"minor": "minor", "major": "major", "neither": "unknown"}
_ACCESS = {"reads": "read", "writes": "write", "execs": "exec"}


def _faults_of(trace: Trace) -> pd.DataFrame:
    trace.require("page_faults", "processes")
    make_threads(trace)
    counts = {
        "faults": "count(*)",
        **{column: f"count(*) FILTER (kind = '{kind}')" for column, kind in _KINDS.items()},
        '"user"': 'count(*) FILTER ("user")',
        "kernel": 'count(*) FILTER (NOT "user")',
        **{column: f"count(*) FILTER (access = '{one}')" for column, one in _ACCESS.items()},
        "accesses": "count(access)",
    }
    summed = [f"sum(f.{column})::BIGINT AS {column}" for column in counts]
    counted = [f"{count} AS {column}" for column, count in counts.items()]
    return trace.sql(
        f"""
        SELECT f.pid, t.comm, t.role, {", ".join(summed)}
        FROM (
            SELECT pid, {moment(trace, "pid")} AS ts, {", ".join(counted)}
            FROM page_faults GROUP BY ALL
        ) f LEFT JOIN threads t ON {owns("t", "f", "pid")}
        GROUP BY f.pid, t.life, t.comm, t.role
        """
    )


def _faults(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.astype(dict.fromkeys(parts.columns[3:], "Int64"))
    told = found["minor"] + found["major"] > 0
    known = found["accesses"] == found["faults"]
    for columns, there in ((_KINDS, told), (_ACCESS, known)):
        for column in columns:
            found[column] = found[column].where(there)
    found = found.sort_values(["faults", "pid"], ascending=[False, True], ignore_index=True)
    return found.drop(columns="accesses")


PAGE_FAULTS = MergedTable(
    "page_faults",
    "Page faults by process",
    (
        Column("pid", "process", "pid"),
        Column("comm", "its name", "name", text=True),
        Column("role", "its role in the recording", "role", text=True),
        Column("faults", "all faults", "faults"),
        Column("minor", "the page was in memory", "minor"),
        Column("major", "the page had to be read", "major"),
        Column("neither", "the fault failed, or its kind is not known", "neither"),
        Column("user", "in user mode"),
        Column("kernel", "in kernel mode"),
        Column("reads", "by reading", "read"),
        Column("writes", "by writing", "write"),
        Column("execs", "by executing", "exec"),
    ),
    needs=("page_faults", "processes"),
    keys=("pid", "comm", "role"),
    parts=_faults_of,
    finish=_faults,
    note="Neither: the fault failed, or its kind is not known. A dash: not known.",
)


def page_faults(trace: Trace) -> pd.DataFrame:
    """Returns page faults by process, most faults first. `PAGE_FAULTS` has the columns.

    minor, major and neither are null if the kind of no fault of the process is known; reads,
    writes and execs if the architecture does not tell.
    """
    return PAGE_FAULTS.of(trace)


def _causes_of(trace: Trace) -> pd.DataFrame:
    trace.require("page_faults", "processes")
    make_threads(trace)
    return trace.sql(
        f"""
        SELECT t.comm, f.ip_file AS file, f.symbol, sum(f.faults)::BIGINT AS faults,
            sum(f.minor)::BIGINT AS minor, sum(f.major)::BIGINT AS major,
            sum(f.told)::BIGINT AS told
        FROM (
            SELECT tid, {moment(trace)} AS ts, ip_file, symbol, count(*) AS faults,
                count(*) FILTER (kind = 'minor') AS minor,
                count(*) FILTER (kind = 'major') AS major,
                count(*) FILTER (kind != 'unknown') AS told
            FROM page_faults GROUP BY ALL
        ) f LEFT JOIN threads t ON {owns("t", "f")} GROUP BY ALL
        """
    )


def _causes(parts: pd.DataFrame) -> pd.DataFrame:
    found = parts.assign(percent=100.0 * parts["faults"] / parts["faults"].sum())
    for kind in ("minor", "major"):
        found[kind] = found[kind].astype("Int64").where(found["told"] > 0)
    return found.sort_values(
        ["faults", "comm", "file", "symbol"],
        ascending=[False, True, True, True],
        ignore_index=True,
    ).drop(columns="told")


FAULT_CAUSES = MergedTable(
    "fault_causes",
    "Page faults by task, file and function",
    (
        Column("comm", "name of the thread", "task", text=True),
        Column("file", "file of the instruction; null: not known", "file", text=True),
        Column("symbol", "function of the instruction; null: not known", "function", text=True),
        Column("faults", "all faults", "faults"),
        Column("minor", "the page was in memory"),
        Column("major", "the page had to be read", "major"),
        Column("percent", "of all faults", "%"),
    ),
    needs=("page_faults", "processes"),
    keys=("comm", "file", "symbol"),
    parts=_causes_of,
    finish=_causes,
    note="File and function are those of the instruction that faulted.",
)


def fault_causes(trace: Trace) -> pd.DataFrame:
    """Returns page faults by task, file and function (Park & Bahn 2023, Table 8), most first.

    `FAULT_CAUSES` has the columns. minor and major are null if no fault's kind is known.
    """
    return FAULT_CAUSES.of(trace)
