"""The replacement policies there are; help and docs are made of this list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.flushlayer.policies.arc import arc
from analysis.flushlayer.policies.belady import belady
from analysis.flushlayer.policies.clock import clock
from analysis.flushlayer.policies.fifo import fifo
from analysis.flushlayer.policies.lfu import lfu
from analysis.flushlayer.policies.lru import lru
from analysis.flushlayer.policies.s3_fifo import s3_fifo
from analysis.flushlayer.policies.sieve import sieve
from analysis.flushlayer.policies.slru import slru
from analysis.flushlayer.policies.two_q import two_q
from probes.errors import UsageError


@dataclass(frozen=True)
class Policy:
    """Which page leaves when there is no room."""

    name: str
    description: str
    source: str
    kernel: Callable[..., NDArray[np.uint8]]
    one_pass: bool = False
    """All capacities come of one pass (stack_distances.py); otherwise each takes its own."""


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", "the page that came first leaves first", "folklore", fifo),
        Policy(
            "lru",
            "the page used longest ago leaves first",
            "Mattson et al., IBM Systems Journal 1970",
            lru,
            one_pass=True,
        ),
        Policy(
            "clock",
            "FIFO, with another round for a page that was used since",
            "Corbato, MIT Project MAC 1969",
            clock,
        ),
        Policy(
            "lfu",
            "the page used least often since it came leaves first; of several, by LRU",
            "Shah, Mitra and Matani 2010",
            lfu,
        ),
        Policy(
            "slru",
            "LRU in two segments; a page used again is protected (80 % of the capacity at most)",
            "Karedla, Love and Wherry, IEEE Computer 1994",
            slru,
        ),
        Policy(
            "2q",
            "FIFO (a quarter) for new pages, LRU for those asked for again after it",
            "Johnson and Shasha, VLDB 1994, full version",
            two_q,
        ),
        Policy(
            "arc",
            "LRU of pages used once and LRU of pages used again, sizes adapt",
            "Megiddo and Modha, FAST 2003",
            arc,
        ),
        Policy(
            "sieve",
            "FIFO order, a hand takes the first page unused since it last passed",
            "Zhang et al., NSDI 2024",
            sieve,
        ),
        Policy(
            "s3-fifo",
            "a small FIFO (10 %) sorts out pages used once, a main FIFO keeps the others",
            "Yang et al., SOSP 2023, as in libCacheSim",
            s3_fifo,
        ),
        Policy(
            "min",
            "the page whose next use is farthest away leaves first: a bound, it knows the future",
            "Belady, IBM Systems Journal 1966",
            belady,
        ),
    )
}
"""Every policy, by name."""


def find(name: str) -> Policy:
    """A policy; UsageError, naming those there are, where there is none such."""
    policy = POLICIES.get(name)
    if policy is None:
        raise UsageError(f"there is no policy {name!r}", f"known: {', '.join(POLICIES)}")
    return policy


def lines() -> list[str]:
    """What --help says of the policies, a line each."""
    return [f"{policy.name}: {policy.description}" for policy in POLICIES.values()]
