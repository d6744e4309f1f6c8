"""Tables of page faults: by process, and by what caused them."""

from __future__ import annotations

import pandas as pd

from tracer.store.trace import Trace


def page_faults(trace: Trace) -> pd.DataFrame:
    """Page faults by process, most first.

    Columns: pid, comm, role, faults, minor, major, neither (failed, or not told; these three are
    null where no fault of the process was told apart), user, kernel (mode), reads, writes, execs
    (null: not known on this architecture).
    """
    trace.require("page_faults", "processes")
    return trace.sql(
        """
        WITH names AS (
            SELECT pid, CASE WHEN count(DISTINCT role) = 1 THEN any_value(role) ELSE 'other' END
                AS role, arg_max(comm, coalesce(start_ns, 0)) AS comm
            FROM processes WHERE tid = pid GROUP BY pid
        )
        SELECT f.pid, any_value(t.comm) AS comm, any_value(t.role) AS role,
            count(*) AS faults,
            CASE WHEN bool_or(kind != 'unknown') THEN count(*) FILTER (kind = 'minor') END
                AS minor,
            CASE WHEN bool_or(kind != 'unknown') THEN count(*) FILTER (kind = 'major') END
                AS major,
            CASE WHEN bool_or(kind != 'unknown') THEN count(*) FILTER (kind = 'unknown') END
                AS neither,
            count(*) FILTER (f.user) AS "user",
            count(*) FILTER (NOT f.user) AS kernel,
            CASE WHEN count(access) = count(*) THEN count(*) FILTER (access = 'read') END
                AS reads,
            CASE WHEN count(access) = count(*) THEN count(*) FILTER (access = 'write') END
                AS writes,
            CASE WHEN count(access) = count(*) THEN count(*) FILTER (access = 'exec') END
                AS execs
        FROM page_faults f LEFT JOIN names t USING (pid)
        GROUP BY f.pid ORDER BY faults DESC, f.pid
        """
    )


def fault_causes(trace: Trace) -> pd.DataFrame:
    """What took page faults: task, file and function of the instruction (seed 001, Table 8).

    Columns: comm, file (of the instruction; null: not known), symbol (null: not known), faults,
    minor, major, percent (of all faults). Most first.
    """
    trace.require("page_faults", "processes")
    return trace.sql(
        """
        WITH names AS (
            SELECT tid, arg_max(comm, coalesce(start_ns, 0)) AS comm FROM processes GROUP BY tid
        )
        SELECT t.comm, f.ip_file AS file, f.symbol, count(*) AS faults,
            count(*) FILTER (kind = 'minor') AS minor,
            count(*) FILTER (kind = 'major') AS major,
            100.0 * count(*) / sum(count(*)) OVER () AS percent
        FROM page_faults f LEFT JOIN names t USING (tid)
        GROUP BY ALL ORDER BY faults DESC, t.comm, file, symbol
        """
    )
