"""Replacement policies of the layer, over dense page ids; one file per policy, numba kernels.

catalogue.py    the list of policies, with their sources
simulation.py   `simulate` and `outcomes`: a stream through a layer of one capacity
operations.py   the operations of accesses on a layer, and the kinds of buffer
accounting.py   the counts that all policies keep
queue.py        the queue that most policies use
bits.py         words of bits: the order of recency, for LRU and its curve
fifo.py, clock.py, lru.py, slru.py, lfu.py, two_q.py, arc.py, sieve.py, s3_fifo.py, belady.py
                the policies
"""

from tracer.analysis.flushlayer.policies.catalogue import POLICIES, Policy, find_policy
from tracer.analysis.flushlayer.policies.simulation import (
    Counts,
    Operations,
    Outcomes,
    Pages,
    lru,
    outcomes,
    simulate,
)

__all__ = [
    "POLICIES",
    "Counts",
    "Operations",
    "Outcomes",
    "Pages",
    "Policy",
    "find_policy",
    "lru",
    "outcomes",
    "simulate",
]
