"""perf-tools: the `perf` command as a backend, found, started, waited for, ended and read.

command.py    the command itself: features, life, failures
stat.py       `perf stat`: counters of a target
record.py     `perf record`: samples of events with their call chains
perf_data.py  what `perf record` wrote, record by record in time order
processes.py  what threads are called, and which file lies where in their processes
stacks.py     samples into folded stacks
told.py       device and operation in the raw data of a tracepoint

What `perf script` prints is for eyes: it writes thread names, paths and symbols as they are, line
feeds and all, and takes a return address on a user's stack for a switch to kernel context, so that
any process of the machine can put samples and kernel frames into it. The binary records say how
long a name is, so they are read here instead.
"""
