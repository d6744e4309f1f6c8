"""The marks file: fixed records in a shared file mapping, written by one process.

A file is a sequence of 64-byte records and is allocated ahead in whole chunks; a record whose
last byte is not COMMITTED was never finished and is skipped. Integers are little-endian.

    offset  size  field
         0     8  ts        ns of CLOCK_MONOTONIC
         8     4  pid
        12     4  tid
        16     8  epoch     ABSENT where the mark gave none
        24     8  step      ABSENT where the mark gave none
        32     1  kind      BEGIN, END or MEASURED; with AUTOMATIC where PyTorch was made to mark it
        33    30  name      UTF-8, padded with zeros
        63     1  COMMITTED

MEASURED says of the thread's phase `name` that went on at time `epoch` that the GPU took `step`
ns for it.
"""

from __future__ import annotations

import struct

RECORD = struct.Struct("<qiiqqB30sB")
RECORD_BYTES = RECORD.size
NAME_BYTES = 30
BEGIN = 1
END = 2
MEASURED = 3
AUTOMATIC = 0x80
COMMITTED = 0xA5
ABSENT = -(1 << 63)
SUFFIX = ".marks"
NOTE_SUFFIX = ".note"
"""Of a text beside the marks: what PyTorch could not be made to mark, and why."""

assert RECORD_BYTES == 64
