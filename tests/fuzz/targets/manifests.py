"""manifest.json, and what tracer info says of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.json_mutation import mutated_json
from tests.fuzz.target import target
from tests.fuzz.targets.rings import FIXTURES
from tests.fuzz.verbs import called
from tests.support.traces import make_trace
from tracer.store import manifest as manifests

_FULL: dict[str, Any] = {
    "tool": {"name": "tracer", "version": "0.1.0", "python": "3.11", "packages": {"numpy": "2"}},
    "recorder": {"pid": 5, "start_time": 7, "boot_id": "another", "guardian": [6, None]},
    "host": {
        "hostname": "h", "machine": "x86_64", "cpu": None, "byteorder": "little", "cpus": 2,
        "memory_bytes": 1 << 30, "page_size": 4096, "boot_id": "another",
    },
    "kernel": {"release": "6.18", "version": "#1"},
    "clock": {"name": "mono", "start_ns": 5, "end_ns": 10**9, "realtime_offset_ns": -3,
              "jiffies": [7, 8]},
    "command": ["python", "train.py"],
    "cuda_sync": True,
    "targets": [
        {"name": "job", "role": "target", "kind": "command", "pid": 7, "exit_status": -9,
         "command": ["x"], "processes": [7], "makers": [8]},
        {"name": "c", "role": "target", "kind": "container", "pid": 8, "container": "ab" * 32,
         "image": "i", "cgroups": [{"hierarchy": 0, "controllers": "", "path": "/c"}]},
    ],
    "containers": [
        {"id": "ab", "name": "c", "image": "i", "pid": 8, "cgroup": None, "merged": "/m",
         "upper": None, "lower": ["/l"],
         "mounts": [{"type": "bind", "source": "/a", "path": "/b", "writable": True}]},
    ],
    "backend_why": "it is there",
    "imported": {"format": "csv", "file": "x", "notes": ["n"], "not_understood": {"lines": 3}},
    "summed_up": ["syscalls"],
    "capture": {"missing": {"dirty": ["a:b"]}, "stats": {"cpu0": {"overrun": 3}}},
    "perf": {"version": "6", "failures": {"a": "b"}, "cpu_s": 0.5, "pids": [9]},
    "samples": {"hz": 1.0, "file": "samples.jsonl", "not_available": {"rapl": "none"},
                "facts": {"governor": "performance"}, "cpu_s": 0.1},
    "syscall_names": {"0": "read"},
    "vm": {"dirty_ratio": 20},
    "mounts": [{"dev": "8:1", "path": "/", "type": "ext4", "source": "/dev/sda1"}],
    "disks": [{"name": "sda", "dev": "8:0", "bytes": 1 << 40, "rotational": True, "on": ["x"]},
              {"name": "sda1", "dev": "8:1", "partition_of": "sda", "start": 2048}],
    "btrfs": [{"fsid": "f", "bdi": "btrfs-1", "dev": "0:30", "devices": ["8:1"]}],
    "file_systems": [{"dev": "8:1", "block_bytes": 4096, "group_blocks": 7}],
    "own_files": {"8:1": [12]},
    "own_cost": {"cpu_s": 1.0, "max_rss_bytes": 5, "bytes_written": 6, "raw_bytes": 7},
    "unmarked": ["no torch"],
}  # fmt: skip


def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for facts in ({}, _FULL):
            made_at = Path(folder) / f"{len(made)}.trace"
            make_trace(made_at, {}, **facts).close()
            made.append((made_at / manifests.FILE).read_bytes())
    real = json.loads((FIXTURES / "lenet.trace" / manifests.FILE).read_text())
    return [*made, json.dumps({**real, "tables": {}}).encode()]


@target(_seeds, mutated_json, tries=50)
def manifest(data: bytes, folder: Path) -> None:
    """manifest.json, shown by tracer info."""
    trace = folder / "t.trace"
    (trace / "events").mkdir(parents=True)
    (trace / manifests.FILE).write_bytes(data)
    manifests.read(trace)
    called("info", trace)
    called("info", trace, "--json")
