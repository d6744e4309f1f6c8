"""What the kernel counted (`tracer record --summary`), over the whole recording."""

from __future__ import annotations

import pandas as pd

from tracer.store.trace import Trace


def summaries(trace: Trace) -> pd.DataFrame:
    """Calls, faults, requests and write-back as they were counted in the kernel.

    Columns: kind, name, dev, count, errors, total_s, mean_us, mib; null where the kind has no
    such thing.
    """
    trace.require("summaries")
    return trace.sql(
        """
        SELECT kind, name, dev, sum(count)::BIGINT AS count, sum(errors)::BIGINT AS errors,
            sum(total_ns) / 1e9 AS total_s, sum(total_ns) / sum(count) / 1e3 AS mean_us,
            sum(bytes) / 1048576.0 AS mib
        FROM summaries GROUP BY kind, name, dev ORDER BY kind, total_s DESC NULLS LAST, count DESC
        """
    )
