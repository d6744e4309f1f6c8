"""Waits of threads with their causes, and what they cost each step.

waits.py              one row per wait: kind, culprit, certainty
sleeps.py             intervals off the CPU, with the events around them
wait_causes.py        the cause of each interval
wait_rows.py          the rows of waits, as they are kept
sync_parts.py         parts of a wait for the journal
cpu_turns.py          who had the CPU while a thread waited for it (turn_parts.py puts it together)
throttled.py          waits for a CPU in which the cgroup had used up its quota
throttled_rests.py    the other waits for a CPU of such cgroups
gpu_waits.py          times in functions that wait for a GPU
stalls.py             one row per wait of a thread for storage, as far as calls and faults tell
waiting_lines.py      lines of Python code that threads wait in
steps.py              one row per minibatch: fetch stall, forward, backward, optimizer, overhead
critical_path.py      one row per segment of the path that a step's time depended on
chain_walk.py         the walk along a chain of waits
path_windows.py       waits around some steps at a time
"""
