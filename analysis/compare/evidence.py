"""Tables that tell kinds of one topic apart.

The pages of a reason whose evidence was not recorded count as another reason, and so does the time
of a kind of wait. So a trace that lacks such a table has no measure of these kinds, if it is
compared with one that has the table.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from tracer.store.trace import Trace

_Key = TypeVar("_Key", bound=Hashable)

_CALLS = frozenset({"syscalls"})
_WRITES = frozenset({"file_writes", "syscalls"})
_FLUSHER = frozenset({"writeback"})
_ASLEEP = frozenset({"dirty", "reclaim"})
"""Tables that tell sleeps in which a thread seems to wait for a device without them."""
_REASONS: Mapping[str, frozenset[str]] = {
    "all": frozenset(),
    "journal": frozenset({"file_writes"}),
    "fsync": _WRITES,
    "direct": _WRITES,
    "sync": _FLUSHER | _CALLS,
    "other": _FLUSHER | _WRITES,
}
_KINDS: Mapping[str, frozenset[str]] = {
    "run": frozenset(),
    "cpu": frozenset({"samples"}),
    "throttled": frozenset({"samples"}),
    "dirty": frozenset({"dirty"}),
    "reclaim": frozenset({"reclaim"}),
    "gpu": frozenset({"gpu_calls"}),
    "sync": _WRITES | _ASLEEP,
    "disk": _WRITES | _ASLEEP | {"block", "page_faults"},
    "fault": _CALLS | _ASLEEP | {"page_faults"},
    "lock": _CALLS | _ASLEEP,
    **dict.fromkeys(("timer", "child", "ipc", "frozen"), _CALLS),
}
_ANY_KIND = frozenset[str]().union(*_KINDS.values(), _WRITES)

TABLES = _ANY_KIND | _FLUSHER
"""All tables that are evidence of some kind."""


def of_reason(reason: str) -> frozenset[str]:
    """Returns the tables that tell the reason of a flush: the flusher's own reasons by default."""
    return _REASONS.get(reason, _FLUSHER)


def of_wait(kind: str) -> frozenset[str]:
    """Returns the tables that tell a kind of wait: any of them for the kind `other`."""
    return _KINDS.get(kind, _ANY_KIND)


def one_sided(lacks: Mapping[_Key, frozenset[str]]) -> dict[_Key, frozenset[str]]:
    """Returns, for each trace, the tables that it lacks and another trace has."""
    by_all = frozenset[str].intersection(*lacks.values())
    return {key: tables - by_all for key, tables in lacks.items()}


def lacking(trace: Trace) -> frozenset[str]:
    """Returns the tables of evidence that a trace lacks."""
    return TABLES - set(trace.tables)
