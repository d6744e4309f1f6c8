"""The model `timed`: an event-driven simulation of bios, a layer on its medium, and the disks.

simulation.py        `simulate`: makes the arrays of state.py and runs events.py over them
requests.py          the bios to simulate; replay.py: which bio waits for which in closed replay
queueing.py          the event queue and the queue of each device; service.py: service times
disk.py, electronic.py  the model of a device: a row of numbers from the catalogue
residency.py         the pages that a layer holds; destage.py: when it writes them to the disk
volatile_cache.py    the disk's own cache, flushes and FUA; completion.py: the end of a bio
outcome.py           response times by group, use of devices, comparisons; nvm.py: wear, energy
"""

from tracer.analysis.flushlayer.timed.simulation import Layer, Replay, is_ready, simulate

__all__ = ["Layer", "Replay", "is_ready", "simulate"]
