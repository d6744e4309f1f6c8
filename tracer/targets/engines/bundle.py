"""OCI bundles: config.json, from which runc or crun makes a container.

Specification: config.md of opencontainers/runtime-spec. The process's environment is not read.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.probes.cgroups import container_id
from tracer.probes.proc import read_mounts
from tracer.store.checked import STRICT, Listed
from tracer.store.manifest_parts import ContainerFacts, ContainerMount
from tracer.store.names import escaped
from tracer.targets.cgroups import Cgroup, of_container, of_process
from tracer.targets.engines import state

CONFIG = "config.json"
_MOST_BYTES = 4 << 20
_WHOLE_ID = 64
_MOST_LAYERS = 500

_Text = Annotated[str, Field(max_length=4096)]


@with_config(STRICT)
class _Root(TypedDict):
    path: NotRequired[_Text]


@with_config(STRICT)
class _Mount(TypedDict):
    destination: NotRequired[_Text]
    type: NotRequired[_Text]
    source: NotRequired[_Text]
    options: NotRequired[Annotated[Listed[_Text], Field(max_length=256)] | None]


@with_config(STRICT)
class _Linux(TypedDict):
    cgroupsPath: NotRequired[_Text]


@with_config(STRICT)
class Config(TypedDict):
    """The parts of config.json that tell of a container's name, cgroup and folders."""

    annotations: NotRequired[dict[str, str] | None]
    root: NotRequired[_Root | None]
    mounts: NotRequired[Annotated[Listed[_Mount], Field(max_length=4096)] | None]
    linux: NotRequired[_Linux | None]


def read(within: int, owner: int, share: state.Share | None = None) -> Config:
    """Returns config.json in an open folder, see `state.read`. Raises Refused."""
    found: Config = state.read_json(Config, CONFIG, within, owner, _MOST_BYTES, share)
    return found


def of_pod(namespace: str, pod: str, container: str) -> str | None:
    """Returns NAMESPACE/POD/CONTAINER of Kubernetes; None if a part is no name of a container."""
    parts = [part for part in (namespace, pod, container) if part]
    return "/".join(parts) if pod and all(map(state.plain, parts)) else None


def cgroups(config: Config, identity: str, pid: int) -> list[Cgroup]:
    """Returns a container's cgroup in each hierarchy, by its init; empty if it has none."""
    given = (config.get("linux") or {}).get("cgroupsPath", "")
    return of_container(pid, lambda path: is_own(path, given, identity))


def believed(own: list[Cgroup], identity: str, side: state.Side, monitor: int) -> list[Cgroup]:
    """Returns those of a container's cgroups that its monitor is believed about.

    A user's container has a cgroup that the user can have made: its folder, or the one above,
    belongs to the user. That of a container's root lies below the container. An id of 64 digits,
    which another container could have, is in the name of the cgroup.
    """
    if side.trusted:
        return own
    if len(identity) == _WHOLE_ID:
        own = [cgroup for cgroup in own if container_id(cgroup.path) == identity]
    if side.owner != 0:
        return [cgroup for cgroup in own if side.owner in _owners(cgroup)]
    around = {number: _container_in(path) for number, path in of_process(monitor).items()}
    outer = {number: path for number, path in around.items() if path is not None}
    return [c for c in own if c.path.startswith(f"{outer.get(c.hierarchy, c.path)}/")]


def _owners(cgroup: Cgroup) -> set[int]:
    """Returns the users to whom a cgroup's folder, and the one above it, belong."""
    if cgroup.folder is None:
        return set()
    with contextlib.suppress(OSError):
        return {place.stat().st_uid for place in (cgroup.folder, cgroup.folder.parent)}
    return set()


def _container_in(path: str) -> str | None:
    """Returns the part of a cgroup's path that leads to the innermost container; None if none."""
    parts = path.split("/")
    ids = [n for n in range(1, len(parts)) if container_id(f"/{parts[n]}") is not None]
    return "/".join(parts[: ids[-1] + 1]) if ids else None


def is_own(path: str, given: str, identity: str) -> bool:
    """Returns whether a cgroup is the container's. `given`: cgroupsPath of its configuration."""
    last = path.rpartition("/")[2]
    if len(identity) == _WHOLE_ID and identity in last:
        return True
    *slices, prefix, name = ["", *given.split(":")]
    if slices:  # for systemd: SLICE:PREFIX:NAME
        return bool(name) and last == (f"{prefix}-{name}.scope" if prefix else f"{name}.scope")
    own = given.strip("/")
    return bool(own) and path.endswith(f"/{own}")


def add_cgroups(facts: ContainerFacts, own: list[Cgroup]) -> None:
    """Adds the container's cgroups, by which the recording knows its processes."""
    paths = list(dict.fromkeys(cgroup.facts()["path"] for cgroup in own))
    facts["cgroup"] = paths[0] if paths else None
    if len(paths) > 1:
        facts["cgroups"] = paths


def add_planned_cgroup(facts: ContainerFacts, config: Config) -> None:
    """Adds the cgroup in which a container will run, if its whole path is given."""
    given = (config.get("linux") or {}).get("cgroupsPath", "")
    if given.startswith("/") and ".." not in given.split("/"):
        facts["cgroup"] = escaped(given)


def add_folders(facts: ContainerFacts, config: Config, bundle: str) -> None:
    """Adds the container's folders on the host: its root, layers and mounts.

    The layers are those that the kernel has mounted as the root of its first process.
    """
    root = (config.get("root") or {}).get("path", "")
    facts["merged"] = _text(os.path.join(bundle, root)) if root else None  # noqa: PTH118 a text
    facts["mounts"] = [
        ContainerMount(
            type="bind",
            source=_text(mount["source"]),
            path=_text(mount["destination"]),
            writable="ro" not in (mount.get("options") or []),
        )
        for mount in config.get("mounts") or []
        if mount.get("type") in ("bind", "none")
        and mount.get("source", "").startswith("/")
        and mount.get("destination", "").startswith("/")
    ]
    mounts = [m for m in read_mounts(Path(f"/proc/{facts['pid']}/mountinfo")) if m.path == b"/"]
    if not mounts or mounts[-1].kind != b"overlay":
        return
    lower: list[bytes] = []
    for option in mounts[-1].options.split(b","):
        key, _, value = option.partition(b"=")
        if key in (b"lowerdir", b"lowerdir+") and b"\\" not in value:
            lower += value.split(b":")
        elif key == b"upperdir":
            facts["upper"] = _real(value)
    facts["lower"] = [_real(layer) for layer in lower[:_MOST_LAYERS] if layer.startswith(b"/")]


def _real(path: bytes) -> str:
    """Returns the path of a layer without links: podman mounts its layers by short links."""
    return escaped(os.path.realpath(path))


def _text(path: str) -> str:
    return escaped(os.path.normpath(path))
