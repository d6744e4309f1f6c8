"""Waits of the thread 7 for a CPU, as tables of a trace and of the answer."""

from tests.support.golden import check

TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]
_QUERY = """
    SELECT ts, dur_ns, by_tid, by_comm, certainty FROM waits WHERE kind = 'cpu' AND tid = 7
    ORDER BY ts
"""
_HEADER = "ts | dur_ns | by_tid | by_comm | certainty"


def check_waits(folder, off_cpu, expected, processes, columns, **tables):
    """Compare the waits that rows of off_cpu give with those expected."""
    trace = {"processes": processes, "off_cpu": f"{columns}\n{off_cpu.strip()}"} | tables
    check(folder, trace, _QUERY, f"{_HEADER}\n{expected.strip()}", targets=TARGETS)
