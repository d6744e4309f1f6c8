"""The causes of page faults that Park & Bahn 2023, Table 8, names, by the function that faulted."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tracer.analysis.report.faults import fault_causes
from tracer.store.trace import Trace

_CAUSES = {
    "loader_relocation": r"_?_dl_relocate_object\w*|elf_(machine_rela?|dynamic_do_rela?)\w*",
    "garbage_collection": (
        r"runtime\.(memclrNoHeapPointers\w*|memclrHasPointers|gc[A-Z]\w*"
        r"|\(\*gc\w+\)\.\w+|scan(object|block|stack|frameworker|Object\w*)|greyobject|markroot\w*"
        r"|sweepone|bgsweep|bgscavenge|wbBufFlush\w*|heapBits\w*"
        r"|\(\*(sweepLocked|sweepLocker|mspan)\)\.(sweep|markBits\w*|heapBits\w*))"
    ),
    "container_start": r"runtime\.(\(\*spanSet\)\.push|getempty)",
    "memory_copy": r"runtime\.memmove",
}
"""Patterns of whole function names, by cause.

The paper gives the causes of single functions: `_dl_relocate_object`: "shared library injection";
`runtime.memclrNoHeapPointers`: "garbage collection"; `runtime.(*spanSet).push` and
`runtime.getempty`: "container start"; `runtime.memmove`: "memory copy". New versions of the loader
have relocation in other functions; other functions of Go's collector count as garbage collection.
The memory copies of a job (`memmove` of the C library) are not the paper's cause.
"""
_NAMED = {cause: re.compile(pattern) for cause, pattern in _CAUSES.items()}

CAUSES = tuple(_CAUSES)
"""The causes, in the paper's order."""
MEASURES = (
    *(f"faults_by_{cause}_percent" for cause in CAUSES),
    *("faults_by_causes_percent", "faults_unnamed_percent", "faults_by_causes_percent_why"),
)
"""The names of the measures of `cause_measures`."""


def cause_of(function: object) -> str | None:
    """Returns the paper's cause of faults in a function; None: none of them, or no name."""
    if not isinstance(function, str):
        return None
    name = function.split("@", 1)[0]
    return next((cause for cause, named in _NAMED.items() if named.fullmatch(name)), None)


def cause_measures(trace: Trace) -> dict[str, float | str | None]:
    """Returns the percentages of all faults by cause, of all causes, and of unnamed functions.

    Null if the function of no fault is known.
    """
    return of_causes(fault_causes(trace))


def of_causes(causes: pd.DataFrame) -> dict[str, float | str | None]:
    """Returns the same from the table `fault_causes`: symbol and percent."""
    percent = pd.to_numeric(causes["percent"])
    unnamed = causes["symbol"].isna()
    found: dict[str, float | str | None] = {"faults_unnamed_percent": float(percent[unnamed].sum())}
    if unnamed.all():
        return found | {"faults_by_causes_percent_why": "the function of no page fault is known"}
    by = percent.groupby(causes["symbol"].map(cause_of)).sum()
    found |= {f"faults_by_{cause}_percent": float(by.get(cause, 0.0)) for cause in CAUSES}
    return found | {"faults_by_causes_percent": float(by.sum())}


def named_causes(causes: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of `fault_causes` that name a function, or at least a file.

    The others are faults of many functions: nothing is known of them, or only that their code lies
    in memory without a file ([anon]) or in the kernel.
    """
    in_file = [isinstance(file, str) and not file.startswith("[") for file in causes["file"]]
    return causes[causes["symbol"].notna() | np.array(in_file, np.bool_)]
