"""Lines of Python code that threads wait in, from looks at their stacks (`tracer record --stacks`).

A look takes some time, and the thread goes on meanwhile. So the stack of a wait is that of the
first look which lies in the thread's time off the CPU as a whole. A time that is shorter than a
look has none.
"""

from __future__ import annotations

from tracer.store.trace import Trace

# A file of a library or of Python itself.
_LIBRARY = (
    r"(^|/)(site|dist)-packages/|/lib(64)?/(python|pypy)[0-9.]+t?/|/python[0-9]+\.zip/"
    r"|(^|\()<(frozen |__array_function__ internals>)"
)

# The thread does not run from the begin of a sleep to its end, its waits for a CPU included. The
# last sleep of a thread may have no end in the recording.
_LINES = f"""
CREATE OR REPLACE TEMP TABLE waiting_lines AS
WITH asleep AS (
    SELECT row, tid, ts, dur_ns FROM (
        SELECT row, tid, ts, dur_ns, lead(row) OVER (PARTITION BY tid ORDER BY ts, row) AS next
        FROM sleeps
    ) WHERE dur_ns > 0 OR dur_ns IS NULL AND next IS NULL
    QUALIFY row_number() OVER (PARTITION BY tid, ts ORDER BY dur_ns DESC NULLS LAST, row) = 1
), looks AS (
    SELECT s.row, arg_min(p.stack, (p.ts, p.until_ns, p.stack)) AS stack
    FROM python_stacks p ASOF JOIN asleep s ON p.tid = s.tid AND p.ts >= s.ts
    WHERE p.until_ns >= p.ts AND (s.dur_ns IS NULL OR p.until_ns <= s.ts::HUGEINT + s.dur_ns)
    GROUP BY s.row
), functions AS (
    SELECT row, stack, string_split(stack, ';') AS functions FROM looks
)
SELECT row, stack, coalesce(list_filter(functions, lambda f: NOT regexp_matches(
    regexp_extract(f, '^.*? \\((.*):[0-9-]+\\)$', 1), '{_LIBRARY}'))[-1], functions[-1]) AS line
FROM functions
"""


_NONE = """
CREATE OR REPLACE TEMP TABLE waiting_lines AS
SELECT NULL::BIGINT AS row, NULL::VARCHAR AS stack, NULL::VARCHAR AS line LIMIT 0
"""


def make_waiting_lines(trace: Trace) -> None:
    """Makes the table waiting_lines: (row, stack, line) of the rows of the table `sleeps`.

    `line` is the innermost function that is not a library's; the innermost one if all are.
    """
    looked = "python_stacks" in trace.tables
    trace.execute(_LINES if looked else _NONE)
