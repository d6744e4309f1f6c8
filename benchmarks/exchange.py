"""Speed of importing other tools' files and of exporting traces for other tools.

python benchmarks/exchange.py --json [--lines N]

Prints one JSON object: for each importer `rows_per_s` (lines or records of the file), for each
exporter `marks_per_s`, each with `max_rss_bytes` of a process that does nothing else, and the
greatest `max_rss_bytes`. Files are made in a temporary folder; loops are compiled beforehand.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# In separate processes, because files of this folder hide our packages.
_MEASURED = """
import json, resource, sys, time
from pathlib import Path
from tracer.analysis.exchange.exporting import export
from tracer.analysis.exchange.formats import import_file
from tracer.store.trace import Trace
small, large, output = map(Path, sys.argv[1:4])
kind = sys.argv[4]
{program}
for path in (small, large):  # the first compiles the loops
    begun = time.monotonic_ns()
    n = run(path)
    ns = time.monotonic_ns() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"n": n, "ns": ns, "bytes": peak}}))
"""
_IMPORT = """
def run(path):
    import_file(path, output, kind, force=True)
    return 0
"""
_EXPORT = """
def run(path):
    with Trace(path) as trace:
        said = export(trace, kind, output, force=True)
    return said["marks"] if "marks" in said else sum(said.values())
"""


def _perf_script(n: int) -> str:
    us = 10 * n
    head = f"          python  1234/1240  [001]  {us // 10**6}.{us % 10**6:06d}: "
    match n % 4:
        case 0:
            return f"{head}block:block_rq_issue: 8,0 WS 4096 () {n * 8} + 8 none,0,0 [python]\n"
        case 1:
            return f"{head}block:block_rq_complete: 8,0 WS () {(n - 1) * 8} + 8 none,0,0 [0]\n"
        case 2:
            return f"{head}raw_syscalls:sys_enter: NR 1 (3, 7f00, 1000, 0, 0, 0)\n"
    return f"{head}raw_syscalls:sys_exit: NR 1 = 4096\n"


def _blk(n: int) -> bytes:
    action = 7 if n % 2 == 0 else 8
    fields = (0x65617407, n, 1000 * n, n // 2 * 8, 4096, action | 2 << 16, 77, 8 << 20, 0, 0, 0)
    return struct.pack("<IIQQIIIIIHH", *fields)


def _files(folder: Path, lines: int) -> dict[str, Path]:
    """Writes one file of each format with this number of lines or records."""
    texts: dict[str, Callable[[int], str]] = {
        "perf-script": _perf_script,
        "msr-csv": lambda n: f"{10**17 + n * 10},hm,0,Write,{n * 4096},4096,500\n",
        "fio-iolog": lambda n: f"{n} /dev/a write {n * 4096} 4096\n",
        "csv": lambda n: f"{n},8:0,{n % 1000},1,W\n",
    }
    heads = {"fio-iolog": "fio version 3 iolog\n", "csv": "ts_ns,dev,page,pages,op\n"}
    made = {}
    for name, line in texts.items():
        made[name] = folder / name
        with made[name].open("w") as out:
            out.write(heads.get(name, ""))
            out.writelines(map(line, range(lines)))
    made["blktrace"] = folder / "blktrace"
    with made["blktrace"].open("wb") as file:
        file.writelines(map(_blk, range(lines)))
    made["oracle-general"] = folder / "oracle"
    records = np.zeros(lines, [("t", "<u4"), ("o", "<u8"), ("s", "<u4"), ("n", "<i8")])
    records["t"] = np.arange(lines) // 1000
    records["o"] = np.arange(lines) % 1000
    made["oracle-general"].write_bytes(records.tobytes())
    return made


def _alone(program: str, *arguments: object) -> dict[str, int]:
    """Runs a program wrapped in `_MEASURED`; returns its output."""
    ran = subprocess.run(
        [sys.executable, "-c", _MEASURED.format(program=program), *map(str, arguments)],
        cwd=Path(__file__).resolve().parent.parent,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, int] = json.loads(ran.stdout)
    return found


def measure(lines: int) -> dict[str, Any]:
    """Returns the results."""
    found: dict[str, Any] = {"lines": lines, "import": {}, "export": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small").mkdir()
        small = _files(folder / "small", 1000)
        for kind, path in _files(folder, lines).items():
            output = folder / f"{kind}.trace"
            said = _alone(_IMPORT, small[kind], path, output, kind)
            found["import"][kind] = {
                "rows_per_s": round(lines / (said["ns"] / 1e9)), "max_rss_bytes": said["bytes"],
            }  # fmt: skip
        _alone(_IMPORT, *[small["perf-script"]] * 2, folder / "small.trace", "perf-script")
        for format in ("perfetto", "chrome", "csv", "parquet"):
            said = _alone(
                _EXPORT, folder / "small.trace", folder / "perf-script.trace",
                folder / f"out.{format}", format,
            )  # fmt: skip
            found["export"][format] = {
                "marks_per_s": round(said["n"] / (said["ns"] / 1e9)), "marks": said["n"],
                "max_rss_bytes": said["bytes"],
            }  # fmt: skip
    every = [*found["import"].values(), *found["export"].values()]
    found["max_rss_bytes"] = max(one["max_rss_bytes"] for one in every)
    return found


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lines", type=int, default=1_000_000, help="number of lines of each file")
    options = parser.parse_args()
    found = measure(options.lines)
    if options.json:
        print(json.dumps(found))
        return
    for way in ("import", "export"):
        for kind, figures in found[way].items():
            print(f"{way} {kind}: {figures}")


if __name__ == "__main__":
    main()
