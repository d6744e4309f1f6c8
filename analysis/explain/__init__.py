"""Explanations: why steps took as long as they did, from their critical paths.

explanation.py  the numbers: what all steps depended on, and what the slowest ones had more of
segments.py     the longest segments of a slow step's critical path
meanwhile.py    what disks served while threads waited for them
over_time.py    the steps by cause over the run
words.py        their words
text.py         their text on a terminal
waiting.py      waiting time on the paths, by thread, function and kind
losses.py       the steps during which events were lost
"""
