"""A job that writes as training does: log lines and checkpoints, each made durable.

python fsync_job.py FOLDER LINES NOTES

Writes LINES lines of a log, one every 100 ms. With each line it writes a random page of an 8 MiB
cache, without fsync; with every thirtieth, a checkpoint of 1 MiB by truncation and rewrite. Its
fsyncs go to NOTES as JSON: [start (ns of CLOCK_MONOTONIC), length (ns), file].
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

LINE_S, LINES_A_CHECKPOINT = 0.1, 30
CHECKPOINT_BYTES, CACHE_BYTES = 1 << 20, 8 << 20


def main(folder: str, lines: int, notes: str) -> None:
    chance = random.Random(23)
    fsyncs = []

    def durable(file: int, name: str) -> None:
        begun = time.monotonic_ns()
        os.fsync(file)
        fsyncs.append([begun, time.monotonic_ns() - begun, name])

    log = os.open(f"{folder}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    cache = os.open(f"{folder}/cache", os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(cache, 0, CACHE_BYTES)
    for line in range(1, lines + 1):
        os.pwrite(cache, chance.randbytes(4096), chance.randrange(CACHE_BYTES // 4096) * 4096)
        os.write(log, b"a line of the log, as long as they are\n")
        durable(log, "log")
        if line % LINES_A_CHECKPOINT == 0:
            file = os.open(f"{folder}/checkpoint", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.write(file, chance.randbytes(CHECKPOINT_BYTES))
            durable(file, "checkpoint")
            os.close(file)
        time.sleep(LINE_S)
    os.sync()
    Path(notes).write_text(json.dumps(fsyncs))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
