"""The marks file: fixed records in a shared file mapping, written by one process.

A file is a sequence of 64-byte records and is allocated ahead in whole chunks. A record whose
last byte is not COMMITTED was never finished, and readers skip it. Integers are little-endian.

    offset  size  field
         0     8  ts        ns of the machine's CLOCK_MONOTONIC (tracer.phases.clock)
         8     4  pid
        12     4  tid
        16     8  epoch     ABSENT if the mark has none
        24     8  step      ABSENT if the mark has none
        32     1  kind      BEGIN, END or MEASURED, with AUTOMATIC if PyTorch made the mark; STOPPED
        33    30  name      UTF-8, padded with zeros
        63     1  COMMITTED

A MEASURED record belongs to the thread's phase `name` that was open at time `epoch` (ns): the GPU
took `step` ns for that phase.

A STOPPED record is the last one of its writer, which could not make its next file. Each file has
a slot for it.
"""

from __future__ import annotations

import struct

RECORD = struct.Struct("<qiiqqB30sB")
RECORD_BYTES = RECORD.size
NAME_BYTES = 30
BEGIN = 1
END = 2
MEASURED = 3
STOPPED = 4
AUTOMATIC = 0x80
COMMITTED = 0xA5
ABSENT = -(1 << 63)
SUFFIX = ".marks"
NOTE_SUFFIX = ".note"
"""Suffix of a text file beside the marks. It lists what PyTorch could not mark, and why."""

assert RECORD_BYTES == 64
