"""The page docs/layers.md, written by the command that makes its tables."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.layers.asked import LONG, SCATTERED
from scripts.layers.compare import MOST_OFF
from scripts.layers.loads import FSYNCED, LEFT, ROUNDS
from scripts.layers.slow_disk import REQUEST_MS, SSD_REQUEST_MS

_PAGE = """\
# Stacked devices and real layers

This page tells how recordings of stacked devices (device mapper, md, loop, bcache) were tested, and
how well `tracer simulate` predicts real flush layers. The command

    make test-layers

boots a kernel of Debian in QEMU without hardware support, builds stacks of devices and real flush
layers in it, records loads on them by ftrace, makes the tables outside it, and compares.

{kernel}.

## Stacked devices

On each stack lies an ext4. A job writes {files} files of {pages} pages in all, each made durable by
an fsync, and one of {left} pages that a sync writes. Then it reads all of them past the page cache.
The numbers are exact.

- *file system's device*: the view `flushes` has the pages, the reason, the inode and the dirtier of
  every file there.
- *devices below*: it has the same on every device below, down to the disks, also where another
  thread submits the writes (dm-crypt, loop devices). A mirror's disks have each page once each.
- *metadata and journal*: these pages are as many on every level, with the same reasons.
- *counted once*: `tracer report` and `tracer simulate` count the pages of the file system's device
  alone, and tell which devices they leave out.
- *reads below*: with the device of any level, `tracer simulate` finds all pages read there in their
  files. Below a loop device and bcache, no event tells their files: there, it finds none of them.

bcache lies on a slow disk ({request_ms} ms for each request) and an SSD ({ssd_ms} ms). It caches
all writes. In writethrough mode, each page reaches both at once. In writeback mode, it reaches the
SSD; the disk gets each page of the files once, after the job. No event tells whose these late
writes are, so they have no file; *devices below* compares their places with those of the files. No
policy of the simulation is like bcache's writeback, which follows the order of the disk, at a rate
that depends on the share of dirty data: only the pages are compared.

{stacks}

## Real layers

The same job runs on a disk alone, and on the disk behind a real layer. The disk (nbdkit) serves one
request at a time and takes {request_ms} ms for each; an SSD takes {ssd_ms} ms. The job does
{rounds} rounds: it writes pages of a cache and a line of a log, and makes each durable by an fsync;
sometimes it writes a checkpoint in place. The recording of the disk alone is the only input of

    tracer simulate bare.trace --model timed --destage dm-writecache-ssd ...

with the capacity of the real layer, and with devices whose times are those of requests that they
serve alone in the guest: for a layer, those of its bios (a page, {long} pages in one write,
{scattered} writes of a page that come together, a flush after them, a FUA write).

*sectors*: all that reached the disk, including what the layer had at the end, which is then
written. *sectors by the end of the load*: for the simulation, what was sent to the disk; for the
real disk, what was complete. The times are those of an emulated machine, whose clock counts
instructions while it computes and is this machine's clock while it waits: compare them with each
other only.

The check fails if the sectors are off by more than {sectors:.0%}, or the mean fsync by more than
{fsync:.0%}. The means are checked only if the simulation repeats the mean of its own recording: a
busy machine makes the emulated one wait for its devices.

{layers}

The rules of dm-writecache that decide its sectors (drivers/md/dm-writecache.c):

- It destages until the dirty pages are below the low watermark; pages in flight count as written.
  The pages that are free at a watermark are rounded to whole pages, half a page up.
- The pages that follow a destaged page on the disk go along, however young they are: with
  persistent memory all of them; with an SSD only those that also follow on the SSD.
- With an SSD, a write that finds no room goes to the disk, and so does each flush. Destaging pauses
  until three seconds after the last of them: a job that makes data durable more often fills the
  layer, and nothing is destaged.
- With an SSD, a dirty page is overwritten in its slot and keeps its turn. With persistent memory,
  this holds until the page is committed; then the new data takes another slot.
- With an SSD, 64 pages are sent at a time; the next ones once all of them are on the disk.
- A page leaves the layer once it is on the disk.

Where an fsync's time goes, with an SSD (mean of 305 fsyncs; simulated in brackets): 4.1 ms (4.2)
the data, 3.9 ms (4.2) the journal, 8.6 ms (9.7) a commit of the layer, 12.4 ms (12.8) the journal's
last block and a second commit after it, 0.3 ms (0.5) computing; 29.2 ms (31.3) in all, 1.07 times.
Given the latency of a single page alone, the simulated medium would take page after page: 61 ms.
With persistent memory, an fsync is computing. (These are of another run on a busy machine, in which
an instruction took 2 ns; in the table, it takes 16 ns.)

Where the simulation differs:

- The times are those of requests that the devices serve alone, before the load. On a machine that
  does other work meanwhile, requests took up to 1.5 times as long under the load, and the mean
  fsync with an SSD was predicted 0.74 times as long as it was; with persistent memory 1.24 times,
  by the delays in the recording of the bare disk. The table is of a machine that did nothing else.
- On an SSD, the real layer reads each page before it writes it to the disk, and commits its
  metadata to the SSD after each copy while fsyncs wait. The simulation has neither.
- A write for which an SSD has too little room goes into the real layer as far as there is room, and
  only the rest around it. In the simulation, all of it goes around.
- No policy of the simulation is like dm-cache, which is not a write buffer: a write goes to the
  disk unless its block was moved to the cache before.
"""


def page(tables: Mapping[str, str]) -> str:
    """Returns the page."""
    return _PAGE.format(
        **tables,
        files=len(FSYNCED),
        pages=sum(FSYNCED),
        left=LEFT,
        rounds=ROUNDS,
        request_ms=REQUEST_MS,
        ssd_ms=SSD_REQUEST_MS,
        sectors=MOST_OFF["sectors"],
        fsync=MOST_OFF["mean fsync"],
        long=LONG,
        scattered=SCATTERED,
    )
