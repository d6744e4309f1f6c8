"""Files in which engines of containers keep their state."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.json_mutation import mutated_json
from tests.fuzz.target import target
from tests.support.bolt import SIZE, branch, leaf, meta
from tracer.probes.errors import BadTrace
from tracer.targets.engines import bolt, bundle, state
from tracer.targets.engines.containerd import entries_in, name_of

_KIND = "io.kubernetes.cri."
_CONFIG: dict[str, Any] = {
    "annotations": {f"{_KIND}sandbox-name": "pod", f"{_KIND}container-name": "train"},
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/data", "type": "bind", "source": "/srv", "options": ["rbind", "ro"]},
        {"destination": "/proc", "type": "proc", "source": "proc"},
    ],
    "linux": {"cgroupsPath": "/default/job"},
}


def _databases() -> list[bytes]:
    labels = (0, leaf([(b"nerdctl/name", b"web")]))
    job = (0, leaf([(b"image", b"bare"), (b"labels", labels)]))
    containers = (0, leaf([(b"job", job)]))
    namespace = (0, leaf([(b"containers", containers)]))
    top = leaf([(b"v1", (4, b""))], 3)
    return [
        b"".join([meta(0, 3, 1), meta(1, 2, 2), branch([(b"v", 3)], 2), top,
                  leaf([(b"default", namespace)], 4)])
    ]  # fmt: skip


def _mutate(chance: Random, data: bytes) -> bytes:
    """Changes bytes behind the descriptions, whose checksums would refuse all else."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        changed[chance.randrange(2 * SIZE, len(data))] = chance.randrange(256)
    return bytes(changed[: chance.choice([len(data), chance.randrange(len(data))])])


@target(_databases, _mutate)
def container_databases(data: bytes, folder: Path) -> None:
    """The database in which containerd keeps its containers."""
    (folder / "meta.db").write_bytes(data)
    fd = os.open(folder / "meta.db", os.O_RDONLY)
    try:
        bolt.read(fd, entries_in)
    except bolt.Damaged as error:
        raise BadTrace(str(error)) from None
    finally:
        os.close(fd)


@target(lambda: [json.dumps(_CONFIG).encode()], mutated_json)
def container_configurations(data: bytes, folder: Path) -> None:
    """The config.json of a container's bundle."""
    (folder / bundle.CONFIG).write_bytes(data)
    fd = os.open(folder, os.O_RDONLY)
    try:
        config = bundle.read(fd, os.getuid())
    except state.Refused as error:
        raise BadTrace(str(error)) from None
    finally:
        os.close(fd)
    pid = os.getpid()
    bundle.cgroups(config, "job", pid)
    facts: Any = {"pid": pid}
    bundle.add_planned_cgroup(facts, config)
    bundle.add_folders(facts, config, "/run/bundle")
    json.dumps(facts).encode()
    assert state.plain(name_of(config.get("annotations") or {}, "job", "").replace("/", "."))
