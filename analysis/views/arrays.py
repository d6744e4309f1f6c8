"""Columns of long query results as arrays.

An Arrow table of a result and the arrays made from it are two copies of the result. Here, the rows
of a batch are freed when they are in the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.store.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


def arrays_of(trace: Trace, query: str, kinds: Mapping[str, DTypeLike]) -> tuple[NDArray[Any], ...]:
    """Returns columns of a query's result, which have no nulls, as arrays.

    `kinds` has the columns' names, in the order of the arrays, and the types of the arrays.
    """
    parts = [[np.empty(0, kind)] for kind in kinds.values()]
    for batch in trace.batches(query):
        for (name, kind), column in zip(kinds.items(), parts, strict=True):
            column.append(batch[name].to_numpy(zero_copy_only=False).astype(kind))
    return concatenated(parts)


def concatenated(parts: list[list[NDArray[Any]]]) -> tuple[NDArray[Any], ...]:
    """Returns the arrays that several columns' parts make, and empties the list of `parts`.

    A column's parts are freed before the next column is put together.
    """
    found = []
    while parts:
        found.append(np.concatenate(parts.pop(0)))
    return tuple(found)
