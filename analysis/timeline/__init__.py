"""A trace over time, in bins: what a timeline draws, whatever the trace's length.

axis.py      the time that is drawn, and its bins
lane.py      what a lane is
binned.py    events, and time within intervals, in bins by a series
events.py    lanes of events: write-backs, faults, system calls, dirtying, stalls
block.py     lanes of block requests: latency, throughput
phases.py    phases as spans, nested
samples.py   lanes of samples
losses.py    when events were lost
heat.py      write-backs by place or file, and time
lanes.py     all of them
"""
