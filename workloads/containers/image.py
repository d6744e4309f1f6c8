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
from collections.abc import Iterator
from typing import Any

import docker
from docker.errors import APIError, BuildError, ContainerError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from tracer.workloads.containers import contents
from tracer.workloads.containers.versions import DEPLOYMENT, TRAINING, Versions, versions
from tracer.workloads.errors import BrokenJobError, JobError
from tracer.workloads.interrupt import held
from tracer.workloads.owner import OWNER, myself

REPOSITORY = "traintrace"
BASE = "base"
_COMMAND = {TRAINING: "train", DEPLOYMENT: "serve"}


@contextlib.contextmanager
def daemon() -> Iterator[docker.DockerClient]:
    """Connects to the Docker daemon. Raises JobError, with how to start it, if none answers."""
    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except (DockerException, OSError) as error:
        raise JobError(
            f"no Docker daemon answers at {os.environ.get('DOCKER_HOST', 'its usual socket')} "
            f"({_line(error)})",
            "start it (systemctl start docker, or dockerd &), or set DOCKER_HOST",
        ) from None
    try:
        yield client
    finally:
        client.close()


def tag(kind: str) -> str:
    """Returns the name that an image of this kind has if it is made on this machine now."""
    if kind == BASE:
        packages = [f"{d.name} {d.version}" for d in contents.distributions()]
        held = packages, contents.LIBRARY, contents.NOT_DEPLOYED
        return _named(kind, *held, str(contents.python()), platform.version())
    return _named(kind, tag(BASE), versions(kind))


def ensure(client: docker.DockerClient, kind: str) -> str:
    """Returns the name of the image; makes it from this machine's Python if it does not exist.

    Raises BrokenJobError with the daemon's reason, such as a full disk.
    """
    base, name = tag(BASE), tag(kind)
    with told("make the image"):
        if not _there(client, base):
            _make_base(client, base)
        if not _there(client, name):
            _make_own(client, base, kind, name)
    return name


def versions_in(client: docker.DockerClient, image: str) -> Versions:
    """Returns the versions that a job in the image runs on. Raises JobError if it cannot run jobs.

    A missing image is an error, since Docker's SDK would look for it in the registry.
    """
    if not _there(client, image):
        raise JobError(
            f"there is no image {image} here", "build or pull it, or name no image to have one made"
        )
    command = [*python_command(client, image), "-m", "tracer.workloads", "versions"]
    try:
        found: Versions = json.loads(_said_by(client, image, command))
        if {"python", "packages", "source"} <= found.keys():
            return found
    except (DockerException, ValueError, AttributeError) as error:
        raise JobError(
            f"the image {image} does not run our jobs ({_line(error)})",
            "build it from workloads/containers/Dockerfile",
        ) from None
    raise JobError(f"the image {image} holds other workloads", "rebuild it")


def _said_by(client: docker.DockerClient, image: str, command: list[str]) -> bytes:
    """Runs a command in an image and returns its stdout. Raises ContainerError if it fails.

    Docker's SDK has this as `containers.run`, which leaves the container if it is interrupted.
    """
    container = None
    try:
        with held():
            container = client.containers.create(
                image, command, entrypoint="", network_mode="none", labels={OWNER: myself()}
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


def python_command(client: docker.DockerClient, image: str) -> list[str]:
    """Returns the command of the interpreter in an image: from its label, else from its PATH."""
    try:
        labels = client.images.get(image).labels or {}
    except ImageNotFound:
        labels = {}
    return [labels.get(f"{REPOSITORY}.python", "python")]


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Turns a refusal by the daemon into a BrokenJobError: what it could not do, and why."""
    try:
        yield
    except (APIError, BuildError, DockerException, RequestException) as error:
        raise BrokenJobError(
            f"the Docker daemon could not {what}: {_line(error)}",
            "look at its log, and at the space on its disk (docker system df)",
        ) from error


def _there(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _make_base(client: docker.DockerClient, name: str) -> None:
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
    repository, _, version = name.rpartition(":")
    try:
        with os.fdopen(source, "rb") as stream:
            said = client.api.import_image(
                src=stream, repository=repository, tag=version, changes=changes, stream_src=True
            )
    finally:
        packing.join()
    if failures:
        with contextlib.suppress(DockerException):
            client.images.remove(name, force=True)
        raise failures[0]
    _check(said, name)


def _make_own(client: docker.DockerClient, base: str, kind: str, name: str) -> None:
    """Adds this machine's version of our own code to the base."""
    entry = json.dumps([str(contents.python()), "-m", "tracer.workloads", _COMMAND[kind]])
    dockerfile = f"FROM {base}\nCOPY own/ {contents.LIBRARY}/\nENTRYPOINT {entry}\n"
    with tempfile.TemporaryFile() as context:
        contents.write_own(context, dockerfile, kind)
        context.seek(0)
        client.images.build(fileobj=context, custom_context=True, tag=name, rm=True, pull=False)


def _check(said: str, name: str) -> None:
    """Raises BrokenJobError if a line of the daemon's answer, one JSON line a step, is an error."""
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            answer: Any = json.loads(line)
            if isinstance(answer, dict) and "error" in answer:
                raise BrokenJobError(
                    f"the image {name} was not made: {str(answer['error'])[:300]}",
                    "look at the space on the daemon's disk (docker system df)",
                )


def _named(kind: str, *what: object) -> str:
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    return f"{REPOSITORY}/{kind}:{digest[:16]}"


def _line(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return " ".join(text.split())[:300]
