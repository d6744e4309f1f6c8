"""The part of a guest's program that makes cgroups, and records them by each backend.

Needs only Python's standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.kernels.cgroups import loads
from scripts.kernels.facts import Disk, Load, Recording
from scripts.kernels.recording import PLACE, PYTHON, ROOT, TRACER, awaited, handed_over

_CGROUPS = Path("/sys/fs/cgroup")
_TRIED_S = 600.0
LIMITS: Mapping[str, Mapping[str, object]] = {
    "reading": {"memory.max": loads.LIMIT},
    "high": {"memory.high": loads.HIGH},
    "greedy": {"memory.max": loads.LIMIT},
    "spinning": {"cpu.max": f"{loads.QUOTA_US} {loads.PERIOD_US}"},
    "moving": {},
    "ended": {},
}
"""Files of each load's cgroup."""
_COUNTERS = ("memory.events", "memory.stat", "cpu.stat")


def recorded(backend: str, disks: dict[str, Disk]) -> Recording:
    """Records the cgroups of all loads, and ends the recorder once the raw data is whole."""
    cgroups = _made(backend)
    trace = PLACE / f"{backend}.trace"
    ran, ready, go, job, said = (
        PLACE / f"{backend}.{name}" for name in ("ran.json", "ready", "go", "job.json", "err")
    )
    files = {name: _file(Path(disks["ext4"]["mount"], f"{backend}.{name}"), limit)
             for name, limit in (("reading", loads.LIMIT), ("high", loads.HIGH))}  # fmt: skip
    told: dict[str, list[str | None]] = {
        name: ["reading" if name == "high" else name, str(cgroup), str(cgroup)]
        for name, cgroup in cgroups.items()
    }
    told["moving"][1] = None
    for name, path in files.items():
        told[name].append(str(path))
    told["moving"].append(str(trace / "raw/members.jsonl"))
    names = {name: str(path) for name, path in (("ran", ran), ("ready", ready), ("go", go))}
    job.write_text(json.dumps({**names, "loads": told}))
    targets = [word for cgroup in cgroups.values() for word in ("--cgroup", str(cgroup))]
    begun = time.monotonic()
    options = ["--backend", backend, "-e", "default,reclaim,sched", "--sample-hz", "10"]
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [*PYTHON, str(ROOT / "scripts/kernels/cgroups/loads.py"), str(job)]
        ) as run,
    ):
        _until(ready.exists, run)
        with subprocess.Popen(
            [*TRACER, "record", "-o", str(trace), *options, *targets],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            cwd=PLACE,
        ) as recorder:
            _until(lambda: "Tracing " in said.read_text(errors="replace"), recorder)
            go.touch()
            if recorder.poll() is None:
                run.wait()
            recorder.terminate()
            captured = awaited(recorder, trace, begun)
            recorder.kill()
        run.kill()
    seconds = time.monotonic() - begun
    found: dict[str, Load] = json.loads(ran.read_text()) if ran.exists() else {}
    for name, cgroup in cgroups.items():
        if name in found:
            found[name]["said"]["cgroup"] = f"/{cgroup.relative_to(_CGROUPS)}"
            found[name]["said"]["inode"] = cgroup.stat().st_ino
            found[name]["said"]["can kill"] = (cgroup / "cgroup.kill").exists()
            found[name]["said"]["files"] = _counters(cgroup)
    _removed(cgroups)
    for path in files.values():
        path.unlink()
    if captured:
        handed_over(trace)
    error = "" if captured else said.read_text(errors="replace").strip()
    return {"captured": captured, "seconds": seconds, "error": error, "loads": found}


def _until(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Waits for an event, or for the end of the process that would cause it."""
    while not happened() and process.poll() is None:
        time.sleep(0.2)


def _made(backend: str) -> dict[str, Path]:
    """Makes a cgroup for each load, below one for the backend; returns their folders."""
    top = _CGROUPS / f"tracer-kernels-{backend}"
    top.mkdir()
    for folder in (_CGROUPS, top):
        (folder / "cgroup.subtree_control").write_text("+cpu +memory")
    made = {name: top / name for name in LIMITS}
    for name, folder in made.items():
        folder.mkdir()
        for file, value in LIMITS[name].items():
            (folder / file).write_text(str(value))
    return made


def _removed(cgroups: dict[str, Path]) -> None:
    for folder in [*cgroups.values(), next(iter(cgroups.values())).parent]:
        for pid in (folder / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        while (folder / "cgroup.procs").read_text():
            time.sleep(0.05)
        folder.rmdir()


def _file(path: Path, limit: int) -> Path:
    """Makes a file of which no page is cached, so that its first reader is charged with them."""
    with path.open("wb") as file:
        for _ in range(loads.TIMES * limit // loads.MIB):
            file.write(os.urandom(loads.MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def _counters(cgroup: Path) -> dict[str, dict[str, int]]:
    """Returns the numbers in the files of a cgroup, by file and name."""
    found = {}
    for name in _COUNTERS:
        lines = map(str.split, (cgroup / name).read_text().splitlines())
        found[name] = {words[0]: int(words[1]) for words in lines}
    return found


def tried(disks: dict[str, Disk]) -> dict[str, Load]:
    """Runs the programs of `trials.py`, each in a process of its own."""
    found: dict[str, Load] = {}
    for name in ("medium", "memory"):
        begun = time.monotonic()
        folder = Path(disks["ext4"]["mount"], name)
        folder.mkdir()
        words = [sys.executable, "-m", "scripts.kernels.cgroups.trials", name, str(folder)]
        with subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                out, err = process.communicate(timeout=_TRIED_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = "", f"it took longer than {_TRIED_S:g} s"
        status = process.returncode
        said = {"error": err.strip()[-2000:]} if status else json.loads(out)
        said["seconds"] = time.monotonic() - begun
        found[name] = {"pid": process.pid, "status": status, "said": said}
        shutil.rmtree(folder)
    return found
