"""Comparison of groups of traces, such as the host, one container and four containers.

measured.py     measures of one trace
known_events.py events that a trace tells of, also if none occurred
evidence.py     tables that tell kinds apart, which all compared traces need
groups.py       repeats of a run, and pairs of traces
ratio.py        a ratio of two groups, its interval, and the ratio expected by chance
comparison.py   all measures of all groups, largest change first
verdicts.py     p of all tests together, and what is said of each measure
readable.py     rows of a comparison in readable units
text.py         a comparison for a terminal
"""
