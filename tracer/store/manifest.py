"""manifest.json: the facts of a recording: targets, machine, options, result.

The classes below are its schema. Every manifest is checked against them, key by key. All times
are ns of CLOCK_MONOTONIC unless stated otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.probes.errors import BadTrace, PermissionMissing
from tracer.store.checked import (
    STRICT,
    Count,
    Inode,
    Listed,
    Pid,
    Whole,
    encoded,
    parsed,
    what_is_wrong,
)
from tracer.store.files import read_bounded, write_whole

SCHEMA = 1
FILE = "manifest.json"
MAX_BYTES = 64 << 20
"""Most bytes of the file."""


class Tool(TypedDict, total=False):
    """The software that wrote the trace."""

    name: str
    version: str
    python: str
    packages: dict[str, str]


class Recorder(TypedDict, total=False):
    """The recording process. Its start time is in clock ticks since the boot `boot_id`.

    `guardian`: pid and start time of the process that saves the data of a killed recorder.
    """

    pid: Pid | None
    start_time: Count | None
    boot_id: str
    guardian: tuple[Pid, Count | None]


class Host(TypedDict, total=False):
    """The machine. `cpu`: its model, null if the kernel does not name it."""

    hostname: str
    machine: str
    cpu: str | None
    byteorder: str
    cpus: Count | None
    memory_bytes: Count
    page_size: Count
    boot_id: str


class Kernel(TypedDict, total=False):
    """The kernel."""

    release: str
    version: str


class Clock(TypedDict):
    """The clock and the time span. `jiffies`: (jiffies, ns) at one moment."""

    name: NotRequired[str]
    start_ns: Count
    end_ns: Count | None
    realtime_offset_ns: NotRequired[Whole]
    jiffies: NotRequired[tuple[Count, Count] | None]


class CgroupFacts(TypedDict):
    """A cgroup: the number of its hierarchy (0: the unified one) and its path from the root."""

    hierarchy: Annotated[int, Field(ge=0, lt=1 << 15)]
    controllers: NotRequired[str]
    path: str


class TargetFacts(TypedDict):
    """A target.

    `pid`: its first process, for a container the init at the start; 0: none. `container`: id.
    `cgroups`: all processes in and below them belong to it. `processes`: the daemon's processes;
    their descendants belong to it. `makers`: a container's shim, which makes its processes.
    """

    name: str
    role: str
    kind: str
    pid: Pid
    command: NotRequired[Listed[str]]
    exit_status: NotRequired[Whole]
    container: NotRequired[str]
    image: NotRequired[str]
    cgroups: NotRequired[Annotated[Listed[CgroupFacts], Field(max_length=1024)]]
    processes: NotRequired[Listed[Pid]]
    makers: NotRequired[Listed[Pid]]


class ContainerMount(TypedDict):
    """A part of the host that is visible at `path` in a container."""

    type: str
    source: str
    path: str
    writable: bool


class ContainerFacts(TypedDict):
    """A container that ran. `pid`: its last known init; 0: never known. `merged`, `upper`,
    `lower`: folders of its overlay. `arrived`: true if it began during the recording."""

    id: str
    name: str
    image: str
    pid: Pid
    cgroup: NotRequired[str | None]
    merged: NotRequired[str | None]
    upper: NotRequired[str | None]
    lower: NotRequired[Listed[str]]
    mounts: NotRequired[Listed[ContainerMount]]
    arrived: NotRequired[bool]


class StreamFacts(TypedDict):
    """One raw file: the events of one CPU, or of all CPUs (-1).

    Without `samples` it holds ring-buffer pages, else chunks: of BPF records ("ebpf"), of perf's
    samples of tracepoints, or of perf records with samples of this one event. `stalls`: the file's
    size at the start and after each pause of the drain, with the time (ns) at which the drain had
    last emptied the buffer.
    """

    file: str
    stream: str
    cpu: Annotated[int, Field(ge=-1, lt=1 << 15)]
    stalls: NotRequired[Annotated[Listed[tuple[Count, Count]], Field(max_length=10_000)]]
    samples: NotRequired[Literal["ebpf", "tracepoints", "perf:minor-faults", "perf:major-faults"]]


class CaptureFacts(TypedDict, total=False):
    """Data for the decoder. `stats` are the kernel's counters of each stream at the end."""

    header_page: str
    header_event: str
    formats: dict[str, str]
    missing: dict[str, Listed[str]]
    streams: Annotated[Listed[StreamFacts], Field(max_length=65536)]
    stats: dict[str, dict[str, Count]]


class CounterFile(TypedDict):
    """The output of `perf stat` for one target; `missing` are events that this kernel lacks.

    `cgroup`: its path, if perf counted the cgroup and not single processes. `arrived`: true for a
    container that began during the recording.
    """

    target: str
    file: str
    missing: Listed[str]
    cgroup: NotRequired[str]
    arrived: NotRequired[bool]


class CallGraphFile(TypedDict):
    """The output of one `perf record`; `formats` of the tracepoints among its events."""

    file: str
    events: Listed[str]
    formats: NotRequired[dict[str, str]]


class Perf(TypedDict, total=False):
    """perf's recordings: `failures` by file, CPU time and process ids of perf itself."""

    version: str
    counters: Listed[CounterFile]
    callgraphs: Listed[CallGraphFile]
    failures: dict[str, str]
    cpu_s: float
    pids: Listed[Pid]


class PythonStacksFacts(TypedDict, total=False):
    """The looks at Python stacks: file, version of py-spy and its CPU time."""

    file: str
    version: str
    cpu_s: float


class Sampling(TypedDict, total=False):
    """The sampling. `hz` 0: no samples.

    `not_available`: readers and series that this machine lacks, and why. `facts`: facts that are
    not numbers (governor, power mode, names of GPUs). `cpu_s`: CPU time of the sampling.
    """

    hz: Annotated[float, Field(ge=0)]
    file: str
    not_available: dict[str, str]
    facts: dict[str, str]
    cpu_s: float


class Mount(TypedDict):
    """A mounted file system; `dev` is MAJOR:MINOR. `on`: `dev` of an overlay's upper layer."""

    dev: str
    path: str
    type: str
    source: str
    on: NotRequired[str]


class Disk(TypedDict, total=False):
    """A block device; `on` names the devices below: block devices or, for a loop device, the
    file system that holds its file. `partition_of` is the disk of a partition, which begins at
    sector `start`."""

    name: str
    dev: str
    bytes: Count
    scheduler: str
    rotational: bool
    write_cache: str
    backing_file: str
    on: Listed[str]
    partition_of: str
    start: Count


class FileSystem(TypedDict):
    """The block size of a mounted file system; xfs has allocation groups of `group_blocks`."""

    dev: str
    block_bytes: Annotated[int, Field(gt=0, le=1 << 30)]
    group_blocks: NotRequired[Annotated[int, Field(gt=0, lt=1 << 32)]]


class Btrfs(TypedDict):
    """A mounted btrfs: its UUID, its name in write-back events, its number in other events
    (MAJOR:MINOR; "" if unknown), and the numbers of its block devices."""

    fsid: str
    bdi: str
    dev: str
    devices: Listed[str]


class Imported(TypedDict, total=False):
    """The origin of an imported trace; `notes` tell assumptions and unknown facts.

    `not_understood`: counts of lines or events, by kind, that made no row.
    """

    format: str
    file: str
    notes: Listed[str]
    not_understood: dict[str, Count]


class OwnCost(TypedDict, total=False):
    """The recorder's own resources, from start to end; `bytes_written`: raw data and tables.

    `capture_`: while events were recorded. `tables_`: making the tables afterwards; the memory is
    the recorder's peak until then.
    """

    cpu_s: float
    capture_cpu_s: float
    capture_max_rss_bytes: Count
    tables_cpu_s: float
    tables_max_rss_bytes: Count
    max_rss_bytes: Count
    bytes_written: Count
    raw_bytes: Count


class TableFacts(TypedDict):
    """One table's size."""

    rows: Count
    bytes: NotRequired[Count]


class LossFacts(TypedDict, total=False):
    """Known events lost, gaps, and gaps of unknown size."""

    events: Count
    windows: Count
    unknown: Count


@with_config(STRICT)
class Manifest(TypedDict):
    """The manifest.

    `state`: recording, captured (raw only) or finalized (with tables). `complete`: the recording
    ended normally. `ended_by`: command, duration, signal, size, target, killed, import, disk (it
    was full), error (of a file; see `failure`). `containers`: all that ran, from the Docker
    daemon; absent without a daemon. `own_files`: inodes, by device, of the recorder's own files.
    `vm`: the sysctls that control write-back. `backend_why`: the reason for the backend.
    `summed_up`: probes whose events the kernel counted. `unmarked`: parts of PyTorch that could
    not be marked, and why. `cuda_sync`: the command synchronized with the GPU at each automatic
    mark. `linger_s`: seconds for which the recording went on after its targets had ended, at most.
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
    targets: Annotated[Listed[TargetFacts], Field(max_length=4096)]
    containers: NotRequired[Annotated[Listed[ContainerFacts], Field(max_length=65536)]]
    probes: Listed[str]
    backend: str
    backend_why: NotRequired[str]
    imported: NotRequired[Imported]
    summed_up: NotRequired[Listed[str]]
    capture: CaptureFacts
    perf: NotRequired[Perf]
    samples: NotRequired[Sampling]
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
    """Writes the manifest of a trace directory, completely or not at all."""
    write_whole(folder / FILE, encoded(manifest, indent=1))


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
        raise BadTrace(f"there is no trace {folder}", "record one: tracer record -o NAME.trace")
    if not folder.is_dir():
        raise BadTrace(
            f"{folder} is a file, but a trace is a directory",
            "import it: tracer import FILE -o NAME.trace --format FORMAT",
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
            f"{folder} is not a trace: it has no {FILE}", "give the directory of `record -o`"
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


def recording(manifest: Manifest) -> tuple[object, ...] | None:
    """Returns a key that copies of one recording share; None: not known."""
    recorder, clock = manifest["recorder"], manifest["clock"]
    if recorder.get("pid") is None:
        return None
    return (recorder.get("boot_id"), recorder["pid"], clock["start_ns"], clock["end_ns"])
