"""Speed and memory of the flush layer's kernels, on a seeded random stream of page writes.

    python benchmarks/flushlayer.py --json [--writes N] [--pages N] [--skew S] [--work DIR]

Prints one JSON object. By default, the stream has 10 million writes to a million pages, Zipf with a
skew of 0.9. `lru_ratio_to_libcachesim`: requests per second of our LRU write-back over those of
libCacheSim's LRU, which reads them from a file and has no dirty bit. They run in turn in one
process; the ratio is the least, over three capacities, of the medians (`lru_requests_per_s` and
`libcachesim_requests_per_s` are of the same capacity). `curve_requests_per_s`: writes per second of
LRU's exact curve at every capacity, on one core. `policy_requests_per_s`: writes per second of one
pass of each policy at a quarter of the pages. `sweep_s`: time of 8 media x 64 capacities x 6
policies over the stream on two CPUs, compiled before; `max_rss_bytes`: peak memory of the sweep's
process. Needs about 100 MB of disk in DIR (default: TMPDIR), which it frees.
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
    """Makes the stream, then measures each part in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--writes", type=int, default=10_000_000, help="page writes")
    parser.add_argument("--pages", type=int, default=1_000_000, help="most pages")
    parser.add_argument("--skew", type=float, default=0.9, help="exponent of the Zipf distribution")
    parser.add_argument("--work", type=Path, help="folder for the temporary stream")
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
