"""manifest.json: the facts of a recording: targets, machine, options, result.

The class `Manifest` and those of `manifest_parts.py` are its schema. Every manifest is checked
against them, key by key. All times are ns of CLOCK_MONOTONIC unless stated otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.probes.backends.choice import NONE
from tracer.probes.errors import BadTrace, PermissionMissing, TracerError
from tracer.probes.text import shell_word
from tracer.store.checked import (
    MOST_PARTS,
    STRICT,
    Count,
    Inode,
    Listed,
    Whole,
    encoded,
    has_more_parts,
    parsed,
    what_is_wrong,
)
from tracer.store.files import read_bounded, write_whole
from tracer.store.manifest_parts import (
    MOST_TARGETS,
    Btrfs,
    CaptureFacts,
    Clock,
    ContainerFacts,
    Disk,
    FileSystem,
    Host,
    Imported,
    Kernel,
    LeftRunning,
    LossFacts,
    Mount,
    OwnCost,
    Perf,
    PythonStacksFacts,
    Recorder,
    Sampling,
    StacksFacts,
    TableFacts,
    TargetFacts,
    Tool,
)

SCHEMA = 1
FILE = "manifest.json"
MAX_BYTES = 64 << 20
"""Most bytes of the file."""
MOST_CONTAINERS = 10_000
"""Most containers that a recorder lists. Any user may make some, and a reader takes no more than
65,536."""


@with_config(STRICT)
class Manifest(TypedDict):
    """The manifest.

    `state`: recording, captured (raw only) or finalized (with tables). `complete`: the recording
    ended normally. `ended_by`: command, duration, signal, size, target, killed, import, space (the
    disk had little left), disk (it was full), error (of a file; see `failure`). If nothing tells
    the end, it is killed, and `failure` says so. `containers`: all that ran, from the Docker
    daemon; absent without one. `own_files`: inodes, by device, of the recorder's own files.
    `command`: its first 64 KiB. `vm`: the sysctls that control write-back. `backend_why`: the
    reason for the backend.
    `summed_up`: probes whose events the kernel counted. `unmarked`: parts of PyTorch that could
    not be marked, and why. `cuda_sync`: the command synchronized with the GPU at each automatic
    mark. `linger_s`: seconds for which the recording went on after its targets had ended, at most.
    `left_running`: processes that the targets had started and that ran on when the recording and
    all targets that are processes had ended; absent if that is not known. If only environments tell
    of them, there may be more.
    """

    schema: Count
    tool: NotRequired[Tool]
    state: Literal["recording", "captured", "finalized"]
    complete: bool
    ended_by: NotRequired[str | None]
    failure: NotRequired[str]
    recorder: Recorder
    host: Host
    kernel: NotRequired[Kernel]
    clock: Clock
    duration_s: NotRequired[float | None]
    command: NotRequired[Listed[str] | None]
    cuda_sync: NotRequired[bool]
    linger_s: NotRequired[Annotated[float, Field(ge=0, lt=1e9)]]
    targets: Annotated[Listed[TargetFacts], Field(max_length=MOST_TARGETS)]
    left_running: NotRequired[LeftRunning]
    containers: NotRequired[Annotated[Listed[ContainerFacts], Field(max_length=65536)]]
    probes: Listed[str]
    backend: str
    backend_why: NotRequired[str]
    imported: NotRequired[Imported]
    summed_up: NotRequired[Listed[str]]
    capture: CaptureFacts
    perf: NotRequired[Perf]
    samples: NotRequired[Sampling]
    stacks: NotRequired[StacksFacts]
    python_stacks: NotRequired[PythonStacksFacts]
    syscall_names: NotRequired[dict[str, str]]
    compat_syscall_names: NotRequired[dict[str, str]]
    vm: dict[str, Whole]
    mounts: NotRequired[Listed[Mount]]
    disks: NotRequired[Listed[Disk]]
    btrfs: NotRequired[Listed[Btrfs]]
    file_systems: NotRequired[Listed[FileSystem]]
    own_files: dict[str, Listed[Inode]]
    own_cost: OwnCost
    tables: dict[str, TableFacts]
    unmarked: NotRequired[Listed[str]]
    loss: LossFacts


@with_config(STRICT)
class _Version(TypedDict):
    schema: Count


def write(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest of a trace directory, completely or not at all.

    Raises OSError, and TracerError for a manifest that `read` would refuse as too large.
    """
    text = encoded(manifest, indent=1)
    if len(text) > MAX_BYTES or has_more_parts(text):
        raise TracerError(
            f"{folder / FILE} would be larger than any reader accepts "
            f"({MAX_BYTES >> 20} MiB, {MOST_PARTS} values)",
            "record fewer targets at a time",
        )
    write_whole(folder / FILE, text)


def read(folder: Path) -> Manifest:
    """Returns the checked manifest of a trace; BadTrace if it is missing, damaged or newer."""
    try:
        there = folder.exists()
    except PermissionError:
        raise PermissionMissing(
            f"this user may not access {folder}", "run as the trace's owner, or as root"
        ) from None
    except OSError as error:
        raise BadTrace(f"{folder} cannot be read: {error.strerror}", "name a trace") from None
    if not there:
        raise BadTrace(
            f"there is no trace {folder}",
            "check its name, or record one: tracer record -o NAME.trace",
        )
    if not folder.is_dir() and not folder.is_file():
        raise BadTrace(f"{folder} is no regular file, and a trace is a directory", "name a trace")
    if not folder.is_dir():
        raise BadTrace(
            f"{folder} is a file, but a trace is a directory",
            f"if another tool made it: tracer import {shell_word(folder)} -o NAME.trace",
        )
    path = folder / FILE
    try:
        text = read_bounded(path, MAX_BYTES)
        schema = parsed(_Version, text)["schema"]
        if schema > SCHEMA:
            raise BadTrace(
                f"{folder} has schema {schema}; this tracer knows {SCHEMA}",
                "upgrade: pip install -U traintrace",
            )
        manifest: Manifest = parsed(Manifest, text)
    except FileNotFoundError:
        raise BadTrace(
            f"{folder} is not a trace: it has no {FILE}", "name a folder that `tracer record` made"
        ) from None
    except PermissionError:
        raise PermissionMissing(
            f"this user may not read {path}", "run as the trace's owner, or as root"
        ) from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "record again") from None
    except ValueError as error:
        raise BadTrace(
            f"{path} is damaged: {what_is_wrong(error)}", "restore it from a copy, or record again"
        ) from None
    return manifest


def duration_s(manifest: Manifest) -> float | None:
    """Returns the recording's duration in s; None if its end is unknown."""
    clock = manifest["clock"]
    if clock["end_ns"] is None:
        return None
    return (clock["end_ns"] - clock["start_ns"]) / 1e9


def with_all_events(manifest: Manifest) -> tuple[int, int | None]:
    """Returns the times (ns) between which all events are recorded, those of targets, too.

    The recording begins before, with the events of the machine, and ends after. None: not known.
    """
    clock = manifest["clock"]
    return (
        clock.get("targets_from_ns", clock["start_ns"]),
        clock.get("targets_until_ns", clock["end_ns"]),
    )


ENDS = {
    "command": "the command ended",
    "target": "the target ended",
    "signal": "the recording was stopped",
    "duration": "the time limit was reached",
    "size": "the size limit was reached",
    "space": "the disk had little space left",
    "disk": "the disk was full",
    "error": "a file could not be read or written",
    "killed": "the recorder was killed",
    "import": "imported",
}
"""The values of `ended_by`, in words."""

NOT_NOTED = "the end was not noted, which a full disk prevents, too"
"""The `failure` of a recording that is "killed" because nothing says how it ended."""

_EARLY = ("size", "space", "disk", "error", "killed")


def with_end(manifest: Manifest) -> Manifest:
    """Returns the manifest with an `ended_by`: killed, if nothing tells the end."""
    if manifest.get("ended_by"):
        return manifest
    return {**manifest, "ended_by": "killed", "failure": NOT_NOTED}


def end_unknown(manifest: Manifest) -> bool:
    """Returns whether a full disk may have ended a recording that is said to be killed."""
    return manifest.get("failure") == NOT_NOTED


def end_said(manifest: Manifest) -> str:
    """Returns how a recording ended, in words; an empty string if it goes on."""
    ended_by = manifest.get("ended_by") or ""
    or_full = f" or {ENDS['disk']}" if end_unknown(manifest) else ""
    return f"{ENDS.get(ended_by, '')}{or_full}"


def why_early(manifest: Manifest) -> str | None:
    """Returns the reason for which a recording ended before its targets; None if it did not."""
    ended = with_end(manifest) if manifest["state"] == "recording" else manifest
    early = ended.get("ended_by") in _EARLY
    return f"the recording ended early: {end_said(ended)}" if early else None


def recording(manifest: Manifest) -> tuple[object, ...] | None:
    """Returns a key that copies of one recording share; None: not known."""
    recorder, clock = manifest["recorder"], manifest["clock"]
    if recorder.get("pid") is None:
        return None
    return (recorder.get("boot_id"), recorder["pid"], clock["start_ns"], clock["end_ns"])


def why_no_events(manifest: Manifest) -> str | None:
    """Returns the reason for which a recording has no kernel events; None if it may have some."""
    if manifest.get("backend") != NONE:
        return None
    return f"no kernel events were recorded ({manifest.get('backend_why', 'no reason is known')})"


def page_bytes(manifest: Manifest) -> int:
    """Returns the size of the machine's pages; 4096 if the manifest does not have it."""
    return manifest["host"].get("page_size", 4096)
