"""Speed and memory of the flush layer's kernels, on a stream of page writes made by seed.

    python benchmarks/flushlayer.py --json [--writes N] [--pages N] [--skew S] [--work DIR]

Prints one JSON object. The stream has 10 million writes to a million pages, Zipf with a skew of
0.9, unless told otherwise. `lru_ratio_to_libcachesim`: requests a second of our LRU write-back over
those of libCacheSim's LRU, which reads them from a file and has no dirty bit, turn by turn in one
process; the median of the ratios at the capacity where it is least, of three
(`lru_requests_per_s` and `libcachesim_requests_per_s` belong to it). `curve_requests_per_s`: writes
a second of LRU's exact curve at every capacity, one core. `policy_requests_per_s`: of one pass of
each policy at a quarter of the pages. `sweep_s`: 8 media x 64 capacities x 6 policies over the
stream on two CPUs, compiled before; `max_rss_bytes`: the peak of the process that does it. Needs
some 100 MB of disk in DIR (TMPDIR unless given), which it frees.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from parts.streams import zipf

_CPUS = 2
_SPEED = Path(__file__).with_name("parts") / "layer_speed.py"


def main() -> None:
    """Make the stream, then measure, each part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--writes", type=int, default=10_000_000, help="page writes")
    parser.add_argument("--pages", type=int, default=1_000_000, help="pages, at most")
    parser.add_argument("--skew", type=float, default=0.9, help="of the Zipf distribution")
    parser.add_argument("--work", type=Path, help="folder for the stream, meanwhile")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:_CPUS])
    result: dict[str, Any] = {"writes": options.writes, "skew": options.skew}
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        file = Path(folder) / "stream.npy"
        page = zipf(options.writes, options.pages, options.skew)
        np.save(file, page)
        result["unique_pages"] = int(page.max()) + 1
        del page
        for name in ("libcachesim", "one_core", "sweep"):
            command = [sys.executable, str(_SPEED), name, str(file)]
            result |= json.loads(subprocess.check_output(command))
    print(json.dumps(result) if options.json else "\n".join(f"{k} {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
