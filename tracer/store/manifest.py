"""manifest.json: what was recorded, where, how, and how it went.

The classes below are its schema: what is read is checked against them, key by key. All times
are ns of CLOCK_MONOTONIC unless said otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from probes.errors import BadTrace, PermissionMissing
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
"""The most of the file."""


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
    realtime_offset_ns: NotRequired[Whole]
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
    command: NotRequired[Listed[str]]
    exit_status: NotRequired[Whole]
    container: NotRequired[str]
    image: NotRequired[str]
    cgroups: NotRequired[Annotated[Listed[CgroupFacts], Field(max_length=1024)]]
    processes: NotRequired[Listed[Pid]]
    makers: NotRequired[Listed[Pid]]


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
    lower: NotRequired[Listed[str]]
    mounts: NotRequired[Listed[ContainerMount]]


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
    stalls: NotRequired[Annotated[Listed[tuple[Count, Count]], Field(max_length=10_000)]]
    samples: NotRequired[Literal["ebpf", "tracepoints", "perf:minor-faults", "perf:major-faults"]]


class Ftrace(TypedDict, total=False):
    """What a decoder needs. `stats` are the kernel's counters of each stream at the end."""

    header_page: str
    header_event: str
    formats: dict[str, str]
    missing: dict[str, Listed[str]]
    streams: Annotated[Listed[StreamFacts], Field(max_length=65536)]
    stats: dict[str, dict[str, Count]]


class CounterFile(TypedDict):
    """The output of `perf stat` for one target; `missing` are events that this kernel lacks.

    `cgroup`: its path, where it was counted as one and not process by process.
    """

    target: str
    file: str
    missing: Listed[str]
    cgroup: NotRequired[str]


class CallGraphFile(TypedDict):
    """The output of one `perf record`."""

    file: str
    events: Listed[str]


class Perf(TypedDict, total=False):
    """What perf recorded: `failures` by file, CPU time and process ids of perf itself."""

    version: str
    counters: Listed[CounterFile]
    callgraphs: Listed[CallGraphFile]
    failures: dict[str, str]
    cpu_s: float
    pids: Listed[Pid]


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
    """A mounted file system; `dev` is MAJOR:MINOR. `on`: of an overlay that of its upper layer."""

    dev: str
    path: str
    type: str
    source: str
    on: NotRequired[str]


class Disk(TypedDict, total=False):
    """A block device; `on` names what lies below it: block devices, or the file system that the
    file of a loop device is on. `partition_of` is the disk of a partition, which begins at its
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
    devices: Listed[str]


class Imported(TypedDict, total=False):
    """Where an imported trace comes from: `notes` say what was assumed and what is not known.

    `not_understood`: how many lines or events of which kind made no row.
    """

    format: str
    file: str
    notes: Listed[str]
    not_understood: dict[str, Count]


class OwnCost(TypedDict, total=False):
    """What the recorder itself used, from its start to its end; `bytes_written`: raw and tables.

    `capture_`: while events were let in. `tables_`: making tables of them afterwards; its memory
    is the most that the recorder ever held until then.
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

    `state`: recording, captured (raw only) or finalized (tables are there). `complete`: the
    recording ended as it should. `ended_by`: command, duration, signal, size, target, killed,
    import, disk (it was full), error (of a file: `failure` says which). `containers`: all that
    ran, as far as a Docker daemon says; absent: none does. `own_files`: inodes, by device, of what
    the recorder itself wrote. `vm`: the sysctls that steer write-back. `backend_why`: what made
    the recorder choose it. `summed_up`: probes whose events the kernel counted. `unmarked`: what
    PyTorch could not be made to mark, and why. `cuda_sync`: the command waited for the GPU at each
    of its automatic marks.
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
    targets: Annotated[Listed[TargetFacts], Field(max_length=4096)]
    containers: NotRequired[Annotated[Listed[ContainerFacts], Field(max_length=65536)]]
    probes: Listed[str]
    backend: str
    backend_why: NotRequired[str]
    imported: NotRequired[Imported]
    summed_up: NotRequired[Listed[str]]
    ftrace: Ftrace
    perf: NotRequired[Perf]
    samples: NotRequired[Sampling]
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
    """Write the manifest of a trace directory, whole or not at all."""
    write_whole(folder / FILE, encoded(manifest, indent=1))


def read(folder: Path) -> Manifest:
    """The checked manifest of a trace; BadTrace where there is none, a damaged or a newer one."""
    try:
        there = folder.exists()
    except PermissionError:
        raise PermissionMissing(
            f"{folder} may not be looked at by this user", "run as the trace's owner, or as root"
        ) from None
    except OSError as error:
        raise BadTrace(f"{folder} cannot be read: {error.strerror}", "name a trace") from None
    if not there:
        raise BadTrace(f"there is no trace {folder}", "record one: tracer record -o NAME.trace")
    if not folder.is_dir():
        raise BadTrace(
            f"{folder} is a file, and a trace is a directory",
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


def duration_s(manifest: Manifest) -> float | None:
    """How long the recording lasted; None where its end is not known."""
    clock = manifest["clock"]
    if clock["end_ns"] is None:
        return None
    return (clock["end_ns"] - clock["start_ns"]) / 1e9
