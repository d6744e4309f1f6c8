"""Figures: functions that take a frame and return a plotly figure.

style.py           colours, escaping of names, and the common style
dots.py            values with their intervals, in panels, beside a paper's values
timeline.py        lanes that share an axis of time
heat.py            write-backs by place or file, on the same axis of time
park2023.py        write-backs, page faults, block requests, the flush layer (Park & Bahn 2023)
prashanthi2023.py  minibatches, use of the machine, energy (Prashanthi et al. 2023)
prashanthi2022.py  epochs by cause of wait (Prashanthi et al. 2022)
critical_path.py   the time of steps by cause, and the threads of one step
blame.py           for whom the threads of each target waited
flame.py           a flame graph of waiting time
memory.py          reads with other amounts of memory
what_if.py         a simulated flush layer: capacities, latencies, sweeps
comparison.py      ratios of groups of traces, with their intervals
serving.py         latencies of served models
"""
