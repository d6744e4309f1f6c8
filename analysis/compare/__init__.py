"""Groups of traces held against each other: the host, one container, four containers.

measured.py     what one trace comes to, measure by measure
groups.py       which traces are repeats of each other, and which pair
ratio.py        a ratio of two groups, its interval, and what chance would give
comparison.py   all measures of all groups, what changed most first
readable.py     its rows in units that people read
text.py         a comparison for a terminal
"""
