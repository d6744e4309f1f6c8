"""Lines of Python code that threads wait in, from looks at their stacks (`tracer record --stacks`).

A look takes some time, and the thread goes on meanwhile. So the stack of a wait is that of a look
which lies in the wait as a whole. A wait that is shorter than a look has none.
"""

from __future__ import annotations

from tracer.store.trace import Trace

# A function of a library or of Python itself.
_LIBRARY = r"/(site|dist)-packages/|/lib(64)?/(python|pypy)[0-9.]+/|\(<frozen "

# The thread does not run from the begin of a sleep to its end, its waits for a CPU included.
_LINES = f"""
CREATE OR REPLACE TEMP TABLE waiting_lines AS
WITH looks AS (
    SELECT s.row, arg_min(p.stack, p.ts) AS stack
    FROM python_stacks p ASOF JOIN (FROM sleeps WHERE dur_ns > 0) s
        ON p.tid = s.tid AND p.ts >= s.ts
    WHERE p.until_ns >= p.ts AND p.until_ns <= s.ts::HUGEINT + s.dur_ns
    GROUP BY s.row
), functions AS (
    SELECT row, stack, string_split(stack, ';') AS functions FROM looks
)
SELECT row, stack, coalesce(
    list_filter(functions, lambda f: NOT regexp_matches(f, '{_LIBRARY}'))[-1], functions[-1]
) AS line FROM functions
"""


def make_waiting_lines(trace: Trace) -> None:
    """Makes the table waiting_lines: (row, stack, line) of the rows of the table `sleeps`.

    `line` is the innermost function that is not a library's, else the innermost one.
    """
    trace.empty_if_missing("python_stacks")
    trace.execute(_LINES)
