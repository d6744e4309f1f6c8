"""The list of replacement policies, from which help and docs are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.flushlayer.policies.arc import arc
from tracer.analysis.flushlayer.policies.belady import belady
from tracer.analysis.flushlayer.policies.clock import clock
from tracer.analysis.flushlayer.policies.fifo import fifo
from tracer.analysis.flushlayer.policies.lfu import lfu
from tracer.analysis.flushlayer.policies.lru import lru
from tracer.analysis.flushlayer.policies.s3_fifo import (
    ENOUGH,
    MOST_USES,
    REMEMBERED,
    SMALL,
    s3_fifo,
)
from tracer.analysis.flushlayer.policies.sieve import sieve
from tracer.analysis.flushlayer.policies.slru import PROTECTED, slru
from tracer.analysis.flushlayer.policies.two_q import KIN, KOUT, two_q
from tracer.probes.errors import UsageError


@dataclass(frozen=True)
class Parameter:
    """A constant of a policy: a share of the capacity, or a number."""

    about: str
    value: float
    is_share: bool = True

    @property
    def text(self) -> str:
        """The parameter in words, for docs."""
        shown = f"{_percent(self.value)} of the capacity" if self.is_share else f"{self.value:g}"
        return f"{self.about}: {shown}"


@dataclass(frozen=True)
class Policy:
    """A replacement policy: it chooses the page to evict when the layer is full."""

    name: str
    description: str
    source: str
    kernel: Callable[..., NDArray[np.uint8]]
    parameters: tuple[Parameter, ...] = ()
    one_pass: bool = False
    """True if one pass gives all capacities (stack_distances.py); else each takes its own pass."""
    by_buffer: Mapping[str, str] = field(default_factory=dict)
    """An addition to the description, by the name of a buffer in `operations.BUFFERS`."""

    def in_buffer(self, buffer: str) -> str:
        """Returns the description of the policy in a layer with this buffer."""
        return "; ".join([self.description, *filter(None, [self.by_buffer.get(buffer)])])

    @property
    def row(self) -> str:
        """The policy's row in the docs: name, description, parameters, source."""
        parameters = "; ".join(parameter.text for parameter in self.parameters) or "none"
        return f"| `{self.name}` | {self.description} | {parameters} | {self.source} |"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", "evicts the page that entered first", "folklore", fifo),
        Policy(
            "lru",
            "evicts the least recently used page",
            "Mattson et al., IBM Systems Journal 1970",
            lru,
            one_pass=True,
        ),
        Policy(
            "clock",
            "FIFO, but a page used since it was queued gets another round",
            "Corbato, MIT Project MAC 1969",
            clock,
        ),
        Policy(
            "lfu",
            "evicts the page with the fewest uses since it entered; of several, by LRU",
            "Shah, Mitra and Matani 2010",
            lfu,
        ),
        Policy(
            "slru",
            "two LRU segments; pages used again move to the protected one (at most"
            f" {_percent(PROTECTED)})",
            "Karedla, Love and Wherry, IEEE Computer 1994; the size is that of Caffeine",
            slru,
            (Parameter("protected segment, at most", PROTECTED),),
        ),
        Policy(
            "2q",
            f"FIFO ({_percent(KIN)}) for new pages, LRU for pages requested again after they"
            " left the FIFO",
            "Johnson and Shasha, VLDB 1994, full version, section 3",
            two_q,
            (
                Parameter("FIFO (Kin), the size above which it gives up pages", KIN),
                Parameter("pages remembered after they left it (Kout)", KOUT),
            ),
        ),
        Policy(
            "arc",
            "one LRU list for pages used once, one for pages used again; their sizes adapt",
            "Megiddo and Modha, FAST 2003",
            arc,
        ),
        Policy(
            "sieve",
            "FIFO order; a moving hand evicts the first page not used since its last pass",
            "Zhang et al., NSDI 2024",
            sieve,
        ),
        Policy(
            "s3-fifo",
            f"a small FIFO ({_percent(SMALL)}) filters out pages used once; a main FIFO keeps"
            " the others",
            "Yang et al., SOSP 2023, as in libCacheSim",
            s3_fifo,
            (
                Parameter("small queue", SMALL),
                Parameter("pages remembered after they left it (ghosts)", REMEMBERED),
                Parameter("uses there that move a page to the main queue", ENOUGH, False),
                Parameter("uses that count, at most", MOST_USES, False),
            ),
        ),
        Policy(
            "min",
            "evicts the page whose next use is farthest away, as it knows the future; no policy"
            " misses less often",
            "Belady, IBM Systems Journal 1966",
            belady,
            by_buffer={
                "write-only": "no policy has a smaller D or a larger improvement",
                "read-write": "another policy may have a smaller D and a larger improvement, as"
                " the eviction of a clean page costs no disk write, which min does not consider",
                "sync-only": "another policy may have a smaller D and a larger improvement, as"
                " the eviction of a page that a write past the layer replaces later costs a disk"
                " write, which min does not consider",
            },
        ),
    )
}
"""Every policy, by name."""


def find_policy(name: str) -> Policy:
    """Returns the policy with this name; raises UsageError, with the known names, if none has."""
    policy = POLICIES.get(name)
    if policy is None:
        raise UsageError(f"there is no policy {name!r}", f"known: {', '.join(POLICIES)}")
    return policy


def lines() -> list[str]:
    """Returns the lines of --help on the policies, one per policy."""
    return [f"{policy.name}: {policy.description}" for policy in POLICIES.values()]
