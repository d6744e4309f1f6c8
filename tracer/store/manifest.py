"""manifest.json: what was recorded, where, how, and how it went.

The classes below are its schema: what is read is checked against them, key by key. All times
are ns of CLOCK_MONOTONIC unless said otherwise.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from probes.errors import BadTrace, PermissionMissing
from tracer.store.files import read_bounded, write_whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SCHEMA = 1
FILE = "manifest.json"
_MAX_BYTES = 64 << 20

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Inode = Annotated[int, Field(ge=0, lt=1 << 64)]
Pid = Annotated[int, Field(ge=0, lt=1 << 31)]

_STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Tool(TypedDict, total=False):
    """What wrote the trace."""

    name: str
    version: str
    python: str
    packages: dict[str, str]


class Recorder(TypedDict, total=False):
    """The recording process: its start time is in clock ticks since the boot named.

    `guardian`: pid and start time of the process that saves what a killed recorder leaves.
    """

    pid: Pid | None
    start_time: Count | None
    boot_id: str
    guardian: tuple[Pid, Count | None]


class Host(TypedDict, total=False):
    """The machine. `cpu`: its model, null where the kernel does not name it."""

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
    """When: `jiffies` is (jiffies, ns) of one moment."""

    name: NotRequired[str]
    start_ns: Count
    end_ns: Count | None
    realtime_offset_ns: NotRequired[int]
    jiffies: NotRequired[tuple[Count, Count] | None]


class CgroupFacts(TypedDict):
    """A cgroup: the number of its hierarchy (0: the unified one), the path from that one's root."""

    hierarchy: Annotated[int, Field(ge=0, lt=1 << 15)]
    controllers: NotRequired[str]
    path: str


class TargetFacts(TypedDict):
    """What was traced.

    `pid`: its first process, of a container the init at the start; 0: none. `container`: id.
    `cgroups`: all processes in these and below belong to it. `processes`: of the daemon, those
    whose descendants belong to it. `makers`: a container's shim, which makes processes for it.
    """

    name: str
    role: str
    kind: str
    pid: Pid
    command: NotRequired[list[str]]
    exit_status: NotRequired[int]
    container: NotRequired[str]
    image: NotRequired[str]
    cgroups: NotRequired[Annotated[list[CgroupFacts], Field(max_length=1024)]]
    processes: NotRequired[list[Pid]]
    makers: NotRequired[list[Pid]]


class ContainerMount(TypedDict):
    """What of the host is seen at `path` in a container."""

    type: str
    source: str
    path: str
    writable: bool


class ContainerFacts(TypedDict):
    """A container that ran: `pid` of its init when last seen, 0: never. `merged`, `upper`,
    `lower`: folders of its overlay."""

    id: str
    name: str
    image: str
    pid: Pid
    cgroup: NotRequired[str | None]
    merged: NotRequired[str | None]
    upper: NotRequired[str | None]
    lower: NotRequired[list[str]]
    mounts: NotRequired[list[ContainerMount]]


class StreamFacts(TypedDict):
    """One raw file: the events of one CPU, or of all of them (-1).

    Without `samples` it holds ring-buffer pages, else chunks: of BPF records ("ebpf"), of perf's
    samples of tracepoints, or of perf records whose samples are all of this event. `stalls`:
    where the file stood at first and after the drain had been away, and when (ns) it had last
    left nothing behind.
    """

    file: str
    stream: str
    cpu: Annotated[int, Field(ge=-1, lt=1 << 15)]
    stalls: NotRequired[Annotated[list[tuple[Count, Count]], Field(max_length=10_000)]]
    samples: NotRequired[Literal["ebpf", "tracepoints", "perf:minor-faults", "perf:major-faults"]]


class Ftrace(TypedDict, total=False):
    """What a decoder needs. `stats` are the kernel's counters of each stream at the end."""

    header_page: str
    header_event: str
    formats: dict[str, str]
    missing: dict[str, list[str]]
    streams: Annotated[list[StreamFacts], Field(max_length=65536)]
    stats: dict[str, dict[str, Count]]


class CounterFile(TypedDict):
    """The output of `perf stat` for one target; `missing` are events that this kernel lacks.

    `cgroup`: its path, where it was counted as one and not process by process.
    """

    target: str
    file: str
    missing: list[str]
    cgroup: NotRequired[str]


class CallGraphFile(TypedDict):
    """The output of one `perf record`."""

    file: str
    events: list[str]


class Perf(TypedDict, total=False):
    """What perf recorded: `failures` by file, CPU time and process ids of perf itself."""

    version: str
    counters: list[CounterFile]
    callgraphs: list[CallGraphFile]
    failures: dict[str, str]
    cpu_s: float
    pids: list[Pid]


class Sampling(TypedDict, total=False):
    """How samples were taken: `hz` 0: not at all.

    `not_available`: readers and series that the machine did not give, and why. `facts`: what is no
    number (governor, power mode, names of GPUs). `cpu_s`: CPU time of taking them.
    """

    hz: Annotated[float, Field(ge=0)]
    file: str
    not_available: dict[str, str]
    facts: dict[str, str]
    cpu_s: float


class Mount(TypedDict):
    """A mounted file system; `dev` is MAJOR:MINOR."""

    dev: str
    path: str
    type: str
    source: str


class Disk(TypedDict, total=False):
    """A block device; `on` names the devices below it, `partition_of` the disk of a partition,
    which begins at its sector `start`."""

    name: str
    dev: str
    bytes: Count
    scheduler: str
    rotational: bool
    write_cache: str
    backing_file: str
    on: list[str]
    partition_of: str
    start: Count


class FileSystem(TypedDict):
    """How a mounted file system counts its blocks; xfs in allocation groups of so many."""

    dev: str
    block_bytes: Annotated[int, Field(gt=0, le=1 << 30)]
    group_blocks: NotRequired[Annotated[int, Field(gt=0, lt=1 << 32)]]


class Btrfs(TypedDict):
    """A mounted btrfs: its UUID, the name that write-back has for it, the number that other
    events have (MAJOR:MINOR; "" where it could not be told), and its block devices' numbers."""

    fsid: str
    bdi: str
    dev: str
    devices: list[str]


class Imported(TypedDict, total=False):
    """Where an imported trace comes from: `notes` say what was assumed and what is not known.

    `not_understood`: how many lines or events of which kind made no row.
    """

    format: str
    file: str
    notes: list[str]
    not_understood: dict[str, Count]


class OwnCost(TypedDict, total=False):
    """What the recorder itself used; `bytes_written` of raw data and tables.

    `capture_cpu_s`: while events were let in.
    """

    cpu_s: float
    capture_cpu_s: float
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


@with_config(_STRICT)
class Manifest(TypedDict):
    """The manifest.

    `state`: recording, captured (raw only) or finalized (tables are there). `complete`: the
    recording ended as it should. `ended_by`: command, duration, signal, size, disk, target,
    killed, import. `containers`: all that ran, as far as a Docker daemon says; absent: none
    does. `own_files`: inodes, by device, of what the recorder itself wrote. `vm`: the sysctls
    that steer write-back. `backend_why`: what made the recorder choose it.
    `summed_up`: probes whose events were counted in the kernel, not recorded. `unmarked`: what
    PyTorch could not be made to mark, and why. `cuda_sync`: the command waited for the GPU at
    each of its automatic marks.
    """

    schema: Count
    tool: NotRequired[Tool]
    state: Literal["recording", "captured", "finalized"]
    complete: bool
    ended_by: NotRequired[str | None]
    recorder: Recorder
    host: Host
    kernel: NotRequired[Kernel]
    clock: Clock
    duration_s: NotRequired[float | None]
    command: NotRequired[list[str] | None]
    cuda_sync: NotRequired[bool]
    targets: Annotated[list[TargetFacts], Field(max_length=4096)]
    containers: NotRequired[Annotated[list[ContainerFacts], Field(max_length=65536)]]
    probes: list[str]
    backend: str
    backend_why: NotRequired[str]
    imported: NotRequired[Imported]
    summed_up: NotRequired[list[str]]
    ftrace: Ftrace
    perf: NotRequired[Perf]
    samples: NotRequired[Sampling]
    syscall_names: NotRequired[dict[str, str]]
    vm: dict[str, int]
    mounts: NotRequired[list[Mount]]
    disks: NotRequired[list[Disk]]
    btrfs: NotRequired[list[Btrfs]]
    file_systems: NotRequired[list[FileSystem]]
    own_files: dict[str, list[Inode]]
    own_cost: OwnCost
    tables: dict[str, TableFacts]
    unmarked: NotRequired[list[str]]
    loss: LossFacts


ThreadFacts = tuple[Pid, Pid, Pid | None, str, str | None]
"""A thread at the start: (tid, pid, ppid or null: not known, comm, cgroup path)."""

MemberFacts = tuple[
    Count, Pid, Annotated[int, Field(ge=-1, lt=4096)], Annotated[int, Field(ge=-1, lt=1 << 15)],
    Count, bool,
]  # fmt: skip
"""A process found to belong to a target: (ns of the look, pid, number of the target in the
manifest or -1: none, but it makes processes for one; cgroup hierarchy that it was found in or
-1: by descent; ns of its start, to a clock tick; whether its events were not let in until
then). Pid 0: from then on the targets' events are let in."""

MarkFacts = tuple[str, Pid, Pid, Annotated[list[tuple[Pid, Pid]], Field(max_length=1 << 16)]]
"""Whose marks files of a container are: (how their names begin, its pid in the container, its
pid here or 0: not found, its threads as (there, here))."""

Mapping = tuple[Count, Count, Count, tuple[Count, Count], Inode, str]
"""A mapping: (start, end, offset in the file, device, inode, path)."""

MapFacts = tuple[Pid, Count, list[Mapping]]
"""A process's mappings at the start: (pid, ns, mappings)."""


FileFacts = tuple[str, Inode | None, Inode, str, int | None, str]
"""A file that was written to, at the end: the columns of `probes.files.TABLE`."""

ExtentFacts = tuple[str, Inode, Count, Count, Count]
"""Where a piece of such a file lies: the columns of `probes.extents.EXTENT_MAP`."""


SampleFacts = tuple[
    Count, Annotated[int, Field(ge=-1, lt=4096)],
    list[tuple[str, str | None, Annotated[float, Field(allow_inf_nan=False)]]],
]  # fmt: skip
"""What a reader read: (ns, number of the target in the manifest or -1: the machine, values as
(series, instance, value))."""


@with_config(_STRICT)
class SummaryFacts(TypedDict):
    """What was counted in one interval; see `probes.backends.ebpf.summary`."""

    start: Count
    end: Count
    sums: list[tuple[Literal[1, 2, 3, 4], Inode, Pid, Count, Count, Count, Count]]
    slots: list[tuple[Literal[1, 3], Inode, Annotated[int, Field(ge=0, lt=62)], Count]]
    uncounted: Count


@with_config(_STRICT)
class _Version(TypedDict):
    schema: Count


@cache
def checker(kind: Any) -> TypeAdapter[Any]:
    """What checks JSON against one of these classes; ValueError where it does not fit."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a trace directory, whole or not at all."""
    write_whole(folder / FILE, encoded(manifest, indent=1))


def encoded(value: Any, indent: int | None = None) -> bytes:
    """A value as JSON. Bytes of names that are no UTF-8 become question marks."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")


def read(folder: Path) -> Manifest:
    """The manifest of a trace directory, checked.

    Raises BadTrace where there is none, where it is damaged, or of a newer schema.
    """
    try:
        there = folder.exists()
    except PermissionError:
        raise PermissionMissing(
            f"{folder} may not be looked at by this user", "run as the trace's owner, or as root"
        ) from None
    if not there:
        raise BadTrace(f"there is no trace {folder}", "record one: tracer record -o NAME.trace ...")
    if not folder.is_dir():
        raise BadTrace(
            f"{folder} is a file, and a trace is a directory",
            "import it: tracer import FILE -o NAME.trace --format FORMAT",
        )
    path = folder / FILE
    try:
        text = read_bounded(path, _MAX_BYTES)
        schema = checker(_Version).validate_json(text)["schema"]
        if schema > SCHEMA:
            raise BadTrace(
                f"{folder} has schema {schema}; this tracer knows {SCHEMA}",
                "upgrade: pip install -U traintrace",
            )
        manifest: Manifest = checker(Manifest).validate_json(text)
    except FileNotFoundError:
        raise BadTrace(
            f"{folder} is no trace: it has no {FILE}", "give the directory that `record -o` named"
        ) from None
    except PermissionError:
        raise PermissionMissing(
            f"{path} may not be read by this user", "run as the trace's owner, or as root"
        ) from None
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}", "record again") from None
    except ValueError as error:
        raise BadTrace(
            f"{path} is damaged: {what_is_wrong(error)}", "restore it from a copy, or record again"
        ) from None
    return manifest


def what_is_wrong(error: Exception) -> str:
    """The first thing that is wrong: where, and what."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors()[0]
    place = ".".join(str(part)[:80] for part in first["loc"][:6])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def duration_s(manifest: Manifest) -> float | None:
    """How long the recording lasted; None where its end is not known."""
    clock = manifest["clock"]
    if clock["end_ns"] is None:
        return None
    return (clock["end_ns"] - clock["start_ns"]) / 1e9
