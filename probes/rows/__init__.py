"""Events into rows: what backends have decoded becomes tables, whichever backend it was.

event_rows.py         one row an event, by the probe's declaration
columns.py            fields of events into Arrow columns
syscall_pairing.py    entry and exit of a call into one row
off_cpu_rows.py       a thread's switches and wake-ups into one row an interval off the CPU
off_cpu_intervals.py  the loop over the events that finds these
kernel_stacks.py      the kernel functions in which threads went to sleep
task_states.py        the states of threads that leave their CPU, as the kernel names them
doubt.py              which of such rows a loss of events makes doubtful
fault_rows.py         a fault with its kind; fault_places.py: what it touched
process_rows.py       threads and processes over the recording
threads.py            whose thread an event's thread is
membership.py         which target a process belongs to, as it changes
slots.py              the reasons for which it does, by how specific they are
page_cache_rows.py    rows of the page cache
"""
