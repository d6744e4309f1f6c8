"""The model `timed`: bios, a layer on its medium, and the disks, event by event.

simulation.py        `simulate`: it makes the arrays of state.py and runs events.py over them
requests.py          the bios that it simulates; replay.py: what waits for what in closed replay
queueing.py          events in order, and the line of each device; service.py: times of service
disk.py, electronic.py  a device as a row of numbers, of what the catalogue knows
residency.py         what a layer holds; destage.py: when it writes to the disk
volatile_cache.py    the disk's own cache, flushes and FUA; completion.py: the end of a bio
outcome.py           response times by group, use of devices, comparisons; nvm.py: wear, energy
"""

from analysis.flushlayer.timed.simulation import Layer, Replay, is_ready, simulate

__all__ = ["Layer", "Replay", "is_ready", "simulate"]
