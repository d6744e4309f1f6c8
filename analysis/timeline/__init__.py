"""The timeline: a trace over time, in bins whose number does not depend on the trace's length.

axis.py           the time that is drawn, and its bins
lane.py           the class Lane
binned.py         binning of events and intervals, by series
events.py         lanes of events: write-backs, faults, system calls, dirtying, stalls
block.py          lanes of block requests: latency, throughput
phases.py         phases as nested spans
samples.py        lanes of samples
losses.py         times in which events were lost
heat.py           heat maps of write-backs: place or file by time
lanes.py          all lanes
reads.py          lanes of the page cache
critical_path.py  the lane of what steps depended on
"""
