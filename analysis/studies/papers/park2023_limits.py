"""Park & Bahn 2023: tables of the runs that are limited as the paper's machine was.

The other tables leave these runs out. Here each is compared with its like, under the same limit.
"""

from __future__ import annotations

import pandas as pd

from tracer.analysis.studies.papers import park2023


def event_counts(counters: pd.DataFrame) -> pd.DataFrame:
    """Returns Table 5 of the runs with limited memory and swap.

    Columns: those of `park2023.event_counts`. Raises KeyError if no run declares swap.
    """
    limits = ("swap", "memory")
    for name in limits:
        counters = counters[counters[name].notna()]
    return park2023.event_counts(counters, but=limits)


def writeback_reasons(reasons: pd.DataFrame) -> pd.DataFrame:
    """Returns Tables 9 and 10 of the runs with a threshold of background write-back of their own.

    Columns: those of `park2023.writeback_reasons`. Raises KeyError if no run declares one.
    """
    own = reasons[reasons["dirty_background_bytes"].notna()]
    return park2023.writeback_reasons(own.drop(columns="dirty_background_bytes"))
