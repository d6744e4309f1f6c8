"""The models of `tracer predict --memory`: misses of a page cache with another amount of memory.

page_runs.py      the input: accesses of runs of pages, in order of time
recorded.py       the input that a trace gives; read_around.py: the read-ahead that it had
lru.py            plain LRU at every capacity, in one pass
best.py           MIN at given capacities: no policy misses fewer pages
cache.py          the state of a simulated page cache, and its lists
reclaim.py        what the kernel evicts, and when: two lists per tenant; or plain LRU
read_ahead.py     the kernel's read-ahead: windows, markers, read-around of faults
two_lists.py      the simulation of accesses through a cache with read-ahead
sharing.py        which targets have one limit, or one cgroup
own_memory.py     the memory of targets that is not page cache, over time
prediction.py     `predict`: one call for every model
clocks.py         the range of the kernel's model, by the clock of its statistics
warm.py           pages that were in memory before the recording, and stay there
resident.py       a cache that takes in nothing more once it is full
taken_back.py     runs of pages without those that were not there
reclaim_order.py  the order in which the kernel reclaims from cgroups, as samples tell it
enough.py         the least page cache with which nothing is read twice
knowledge.py      the part of the reads whose file and place are known
answer.py         the answer of the verb; words.py: its words and rows
"""
