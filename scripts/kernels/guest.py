"""The program of a guest: mounts its disks, asks the doctor, records by each backend.

It is the guest's first process, and needs only Python's standard library. The traces that it hands
over have no tables: the host makes them, for a guest is slow.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from scripts.kernels.cgroups import guest as cgroups
from scripts.kernels.disks import KINDS, MOUNT_OPTIONS
from scripts.kernels.facts import CGROUPS, WAITING, Disk, Facts, Job, Load, Recording, Verdict
from scripts.kernels.recording import (
    PLACE,
    PYTHON,
    ROOT,
    TRACER,
    as_first_process,
    hand_over,
    record,
)
from scripts.kernels.waiting import guest as waiting

_CGROUP = Path("/sys/fs/cgroup/tracer-kernels")


def work(job: Job) -> None:
    """Does all that a job asks for."""
    facts: Facts = {
        "release": os.uname().release,
        "disks": {kind: _disk(kind) for kind in KINDS},
        "doctor": _doctor() if job["doctor"] else {},
        "recordings": {},
        "tried": {},
    }
    hand_over(facts)
    if job["suite"] == CGROUPS:
        facts["tried"] = cgroups.tried(facts["disks"])
        hand_over(facts)
    recorded = {CGROUPS: cgroups.recorded, WAITING: waiting.recorded}.get(job["suite"], _recorded)
    for backend in job["backends"]:
        facts["recordings"][backend] = recorded(backend, facts["disks"])
        hand_over(facts)


def _disk(kind: str) -> Disk:
    """Mounts the disk of a kind of file system."""
    if f"\t{kind}\n" not in Path("/proc/filesystems").read_text():
        return {"unmounted": f"the kernel has no module {kind}"}
    for block in Path("/sys/block").glob("vd*"):
        if (block / "serial").read_text().strip() == kind:
            mount = PLACE / kind
            mount.mkdir(parents=True)
            options = ("-o", MOUNT_OPTIONS[kind]) if kind in MOUNT_OPTIONS else ()
            command = ["mount", "-t", kind, *options, f"/dev/{block.name}", str(mount)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode and options:  # the kernel may not know the option
                command = ["mount", "-t", kind, *command[-2:]]
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                return {"unmounted": f"{kind} cannot be mounted: {ran.stderr.strip()}"}
            return {"mount": str(mount), "dev": (block / "dev").read_text().strip()}
    return {"unmounted": f"the guest sees no disk for {kind}"}


def _doctor() -> dict[str, Verdict]:
    ran = subprocess.run(
        [*TRACER, "doctor", "--json"], capture_output=True, text=True, check=False, cwd=PLACE
    )
    if not ran.stdout:
        raise RuntimeError(f"tracer doctor said nothing: {ran.stderr}")
    return {
        check["name"].removeprefix("backend "): {"ok": check["ok"], "found": check["found"]}
        for check in json.loads(ran.stdout)["checks"]
        if check["name"].startswith("backend ")
    }


def _loads(backend: str, disks: dict[str, Disk]) -> dict[str, list[str]]:
    """Returns the loads of a job, by name."""
    loads = {"calls": ["calls"], "faults": ["faults"], "shared faults": ["shared_faults"]}
    for kind, disk in disks.items():
        if "mount" in disk:
            folder = Path(disk["mount"], backend)
            folder.mkdir()
            loads[f"written {kind}"] = ["written", str(folder)]
            if kind == "ext4":
                loads |= {"syncs": ["syncs", str(folder)], "direct": ["direct", str(folder)]}
    word, done = (str(PLACE / f"{backend}.{name}") for name in ("go", "done"))
    loads["joined"] = ["joined", word, done]
    return loads


def _recorded(backend: str, disks: dict[str, Disk]) -> Recording:
    """Records all loads by a backend."""
    python = [*PYTHON, str(ROOT / "scripts/kernels/loads.py")]
    ran, job = PLACE / f"{backend}.ran.json", PLACE / f"{backend}.job.json"
    loads = _loads(backend, disks)
    job.write_text(json.dumps({"ran": str(ran), "loads": loads}))
    os.sync()
    _CGROUP.mkdir(exist_ok=True)
    begun = time.monotonic()
    with subprocess.Popen([*python, "member", str(_CGROUP), *loads["joined"][1:]]) as member:
        (_CGROUP / "cgroup.procs").write_text(str(member.pid))
        options = ["--backend", backend, "--cgroup", str(_CGROUP)]
        error = record(backend, options, [*python, str(job)])
        member.kill()
    found: dict[str, Load] = json.loads(ran.read_text()) if ran.exists() else {}
    seconds = time.monotonic() - begun
    return {"captured": error is None, "seconds": seconds, "error": error or "", "loads": found}


if __name__ == "__main__":
    as_first_process(work)
