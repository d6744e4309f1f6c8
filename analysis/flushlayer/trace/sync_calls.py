"""The simulated times of calls that make data durable."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracer.analysis.flushlayer.timed.outcome import Outcome
from tracer.analysis.flushlayer.timed.requests import Requests
from tracer.analysis.flushlayer.timed.state import READ
from tracer.analysis.views.waiting.stalls import STALLS
from tracer.store.trace import Trace


def sync_calls(trace: Trace, requests: Requests, outcome: Outcome) -> pd.DataFrame:
    """Returns the recorded and the simulated time of each sync call that waited for bios.

    A call's bios are the writes and flushes of its process (`requests.chain`) that came while the
    call was under way, unless they were complete only after it. The time before its first bio and
    after its last completion is the recorded one; the time in between is simulated. `outcome`
    should come from a closed replay, which keeps think times.

    Columns: ts (ns), pid, call, bios, recorded_ns, simulated_ns. Calls without bios have no row.
    Raises ValueError for requests without issuers and completions.
    """
    if requests.chain is None or requests.done is None:
        raise ValueError("the requests have no issuers and completions")
    calls = STALLS.frame(
        trace, "kind = 'sync' AND dur_ns > 0 AND pid IS NOT NULL", ["ts", "dur_ns", "pid", "call"]
    ).sort_values("ts", kind="stable")
    finished = outcome.arrived_ns + outcome.response_ns
    rows = []
    for pid in np.unique(calls["pid"].to_numpy(np.int64)):
        of_process = calls[calls["pid"] == pid]
        mine = np.flatnonzero((requests.chain == pid) & (requests.op != READ))
        ts = of_process["ts"].to_numpy(np.int64)
        length = of_process["dur_ns"].to_numpy(np.int64)
        first = np.searchsorted(requests.ts[mine], ts, "left")
        last = np.searchsorted(requests.ts[mine], ts + length, "right")
        for row in np.flatnonzero(last > first):
            end = ts[row] + length[row]
            bios = mine[first[row] : last[row]]
            bios = bios[requests.done[bios] <= end]
            if not len(bios):
                continue
            seen = requests.done[bios][requests.done[bios] >= 0]
            before = requests.ts[bios[0]] - ts[row]
            after = end - seen.max() if len(seen) else 0
            between = finished[bios].max() - outcome.arrived_ns[bios].min()
            rows.append(
                (
                    int(ts[row]),
                    int(pid),
                    of_process["call"].iloc[row],
                    len(bios),
                    int(length[row]),
                    int(before + between + after),
                )
            )
    columns = ["ts", "pid", "call", "bios", "recorded_ns", "simulated_ns"]
    return pd.DataFrame(rows, columns=columns).sort_values("ts", ignore_index=True)
