"""Replacement policies of the layer, over dense page ids; one file a policy, numba kernels.

catalogue.py    which there are, with their sources
simulation.py   `simulate` and `outcomes`: a stream through a layer of one capacity
accounting.py   what every policy counts alike
queue.py        the queue that most of them are made of
bits.py         words of bits: the order of recency, for LRU and its curve
"""

from analysis.flushlayer.policies.catalogue import POLICIES, Policy, find
from analysis.flushlayer.policies.simulation import (
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
    "find",
    "lru",
    "outcomes",
    "simulate",
]
