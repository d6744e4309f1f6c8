"""The two images of Park & Bahn 2023, section 3: one that trains models, one that serves them.

Both are built on the same base, which holds everything that serving needs. The training image
adds to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from docker.errors import ContainerError, DockerException, ImageNotFound

from tracer.free_space import room_bytes
from tracer.workloads.containers import contents
from tracer.workloads.containers.connection import Client, one_line, told
from tracer.workloads.containers.engines import Engine
from tracer.workloads.containers.versions import DEPLOYMENT, TRAINING, Versions, versions
from tracer.workloads.errors import BrokenJobError, JobError
from tracer.workloads.interrupt import held
from tracer.workloads.owner import OWNER, myself

REPOSITORY = "traintrace"
BASE = "base"
_ID = "sha256:"
_COMMAND = {TRAINING: "train", DEPLOYMENT: "serve"}


def tag(engine: Engine, kind: str) -> str:
    """Returns the name that an image of this kind has if it is made on this machine now."""
    if kind == BASE:
        packages = [f"{d.name} {d.version}" for d in contents.distributions()]
        held = packages, contents.LIBRARY, contents.NOT_DEPLOYED
        return _named(engine, kind, *held, str(contents.python()), platform.version())
    return _named(engine, kind, tag(engine, BASE), versions(kind))


def ensure(client: Client, kind: str) -> str:
    """Returns the name of the image; makes it from this machine's Python if it does not exist.

    Raises BrokenJobError with the engine's reason, such as a full disk.
    """
    base, name = tag(client.engine, BASE), tag(client.engine, kind)
    with told(client.engine, "make the image"):
        if not _there(client, base):
            _require_room(client)
            _make_base(client, base)
        if not _there(client, name):
            _make_own(client, base, kind, name)
    return name


def require_image(client: Client, image: str) -> None:
    """Raises JobError if the engine has no such image; Docker's SDK would ask the registry."""
    with told(client.engine, "look for the image"):
        there = _there(client, image)
    if not there:
        raise JobError(
            f"there is no image {image} here", "build or pull it, or name no image to have one made"
        )


def versions_in(client: Client, image: str) -> Versions:
    """Returns the versions that a job in the image has. Raises JobError if it cannot run jobs."""
    require_image(client, image)
    command = [*python_command(client, image), "-m", "tracer.workloads", "versions"]
    try:
        found: Versions = json.loads(_said_by(client, image, command))
        if {"python", "packages", "source"} <= found.keys():
            return found
    except (DockerException, ValueError, AttributeError) as error:
        raise JobError(
            f"the image {image} does not run our jobs ({one_line(error)})",
            "build it from workloads/containers/Dockerfile",
        ) from None
    raise JobError(f"the image {image} holds other workloads", "rebuild it")


def _said_by(client: Client, image: str, command: list[str]) -> bytes:
    """Runs a command in an image and returns its stdout. Raises ContainerError if it fails.

    Docker's SDK has this as `containers.run`, which leaves the container if it is interrupted.
    """
    container = None
    try:
        with held():
            container = client.containers.create(
                image,
                command[1:],
                entrypoint=command[:1],
                network_mode="none",
                labels={OWNER: myself()},
                **client.engine.create,
            )
        container.start()
        status = container.wait()["StatusCode"]
        if status:
            why = container.logs(stdout=False)
            raise ContainerError(container, status, command, image, why)
        said: bytes = container.logs(stderr=False)
        return said
    finally:
        if container is not None:
            container.remove(force=True, v=True)


def python_command(client: Client, image: str) -> list[str]:
    """Returns the command of the interpreter in an image: from its label, else from its PATH."""
    try:
        labels = client.images.get(image).labels or {}
    except ImageNotFound:
        labels = {}
    return [labels.get(f"{REPOSITORY}.python", "python")]


def _there(client: Client, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _require_room(client: Client) -> None:
    """Raises BrokenJobError if the disk of an engine on this machine has no room for the base."""
    root = Path(client.info().get("DockerRootDir") or "/nowhere")
    if not str(client.api.base_url).startswith("http+docker:") or not root.is_dir():
        return  # the engine is elsewhere
    size, room = contents.base_bytes(), room_bytes(root)
    if size > room:
        raise BrokenJobError(
            f"the image takes {size:,} bytes in {root}, which has room for {room:,}",
            "free some space there (docker image prune shows images that nobody uses)",
        )


def _make_base(client: Client, name: str) -> None:
    sys.stderr.write(f"Making the image {name} from this machine's Python...\n")
    changes = [
        f"ENV PYTHONPATH={contents.LIBRARY}",
        "ENV LANG=C.UTF-8",
        "WORKDIR /output",
        f"LABEL {REPOSITORY}.python={contents.python()}",
    ]
    source, sink = os.pipe()
    failures: list[BaseException] = []

    def pack() -> None:
        try:
            with os.fdopen(sink, "wb") as target:
                contents.write_base(target)
        except BrokenPipeError:
            pass  # the daemon has refused; its answer gives the reason
        except BaseException as error:  # noqa: BLE001 (raised below, in the caller's thread)
            failures.append(error)

    packing = threading.Thread(target=pack, name="image")
    packing.start()
    try:
        with os.fdopen(source, "rb") as stream:
            said = client.api.import_image(src=stream, changes=changes, stream_src=True)
    finally:
        packing.join()
    if failures:
        with contextlib.suppress(DockerException, BrokenJobError):
            client.images.remove(_imported(client, said, name), force=True)
        raise failures[0]
    repository, _, version = name.rpartition(":")
    # podman gives an imported image no tag.
    client.api.tag(_imported(client, said, name), repository, version)


def _make_own(client: Client, base: str, kind: str, name: str) -> None:
    """Adds this machine's version of our own code to the base."""
    entry = json.dumps([str(contents.python()), "-m", "tracer.workloads", _COMMAND[kind]])
    dockerfile = f"FROM {base}\nCOPY own/ {contents.LIBRARY}/\nENTRYPOINT {entry}\n"
    with tempfile.TemporaryFile() as context:
        contents.write_own(context, dockerfile, kind)
        context.seek(0)
        client.images.build(fileobj=context, custom_context=True, tag=name, rm=True, pull=False)


def _imported(client: Client, said: str, name: str) -> str:
    """Returns the id of the image that an answer, one JSON line a step, tells of.

    Raises BrokenJobError if a line is an error, or if none has an id.
    """
    why = "the answer has no id"
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            answer: Any = json.loads(line)
            if isinstance(answer, dict) and "error" in answer:
                why = str(answer["error"])[:300]
            elif isinstance(answer, dict) and str(answer.get("status")).startswith(_ID):
                return str(answer["status"])
    raise BrokenJobError(f"the image {name} was not made: {why}", client.engine.mend)


def _named(engine: Engine, kind: str, *what: object) -> str:
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    return f"{engine.images}{REPOSITORY}/{kind}:{digest[:16]}"
