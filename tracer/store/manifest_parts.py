"""The parts of a manifest: the recorder, the machine, the targets, and what was captured.

Every manifest is checked against these classes, key by key. All times are ns of CLOCK_MONOTONIC
unless stated otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from tracer.store.checked import Count, Listed, Pid, Whole

MOST_TARGETS = 4096
"""Most targets of a recording."""


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
    page_size: Annotated[int, Field(gt=0, le=1 << 30)]
    boot_id: str


class Kernel(TypedDict, total=False):
    """The kernel. `retries_are_major`: it counts faults as major that it only tried again.

    `maps_folios`: a fault that reads maps all pages of a folio; `maps_written_folios`: so does one
    that writes to a shared mapping. Both are missing if the recorder cannot tell.
    """

    release: str
    version: str
    retries_are_major: bool
    maps_folios: bool
    maps_written_folios: bool


class Clock(TypedDict):
    """The clock and the time span. `jiffies`: (jiffies, ns) at one moment.

    `targets_from_ns` and `targets_until_ns`: the times between which all events of targets are
    recorded; missing: `start_ns` and `end_ns`.
    """

    name: NotRequired[str]
    start_ns: Count
    end_ns: Count | None
    targets_from_ns: NotRequired[Count]
    targets_until_ns: NotRequired[Count]
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
    `engine`: the engine that made the container. `command`: its first 64 KiB, or less.
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
    engine: NotRequired[str]
    image: NotRequired[str]
    cgroups: NotRequired[Annotated[Listed[CgroupFacts], Field(max_length=1024)]]
    processes: NotRequired[Listed[Pid]]
    makers: NotRequired[Listed[Pid]]


MOST_NAMED = 20
"""Most processes that `LeftRunning` names: a target may leave any number."""


class LeftProcess(TypedDict):
    """A process that still ran when the recording ended; `start_time`: ticks since boot."""

    pid: Pid
    start_time: Count
    name: str


class LeftRunning(TypedDict):
    """The number of processes of the targets that still ran, and the first of them by pid."""

    count: Count
    processes: Annotated[Listed[LeftProcess], Field(max_length=MOST_NAMED)]


class ContainerMount(TypedDict):
    """A part of the host that is visible at `path` in a container."""

    type: str
    source: str
    path: str
    writable: bool


class ContainerFacts(TypedDict):
    """A container that ran. `pid`: its last known init; 0: never known. `engine`: the engine
    that made it. `cgroup`: its cgroup in the first hierarchy, `cgroups`: its paths in all, if
    they differ. `merged`, `upper`, `lower`: folders of its overlay. `arrived`: true if it began
    during the recording."""

    id: str
    name: str
    image: str
    pid: Pid
    engine: NotRequired[str]
    cgroup: NotRequired[str | None]
    cgroups: NotRequired[Annotated[Listed[str], Field(max_length=1024)]]
    merged: NotRequired[str | None]
    upper: NotRequired[str | None]
    lower: NotRequired[Listed[str]]
    mounts: NotRequired[Listed[ContainerMount]]
    arrived: NotRequired[bool]


class StreamFacts(TypedDict):
    """One raw file: the events of one CPU, or of all CPUs (-1).

    Without `samples` it holds ring-buffer pages, else chunks: of records of BPF programs (our own,
    "programs", or compiled by bcc, "ebpf"), of perf's samples of tracepoints (with or without
    kernel stacks), or of perf records with samples of this one event. `stalls`: the file's size at
    the start and after each pause of the drain, with the time (ns) at which the drain had last
    emptied the buffer.
    """

    file: str
    stream: str
    cpu: Annotated[int, Field(ge=-1, lt=1 << 15)]
    stalls: NotRequired[Annotated[Listed[tuple[Count, Count]], Field(max_length=10_000)]]
    samples: NotRequired[
        Literal[
            "programs",
            "ebpf",
            "tracepoints",
            "tracepoints-with-stacks",
            "perf:minor-faults",
            "perf:major-faults",
        ]
    ]


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
    """perf's recordings: `failures` by file, CPU time and process ids of perf itself.

    `unnamed`: why the kernel's functions have no names in the call graphs.
    """

    version: str
    counters: Listed[CounterFile]
    callgraphs: Listed[CallGraphFile]
    failures: dict[str, str]
    cpu_s: float
    pids: Listed[Pid]
    unnamed: str


class PythonStacksFacts(TypedDict, total=False):
    """The looks at Python stacks: file, version of py-spy and its CPU time."""

    file: str
    version: str
    cpu_s: float


class StacksFacts(TypedDict):
    """The stacks of `tracer record --stacks`. `missing`: a kind that it lacks, and why."""

    kinds: Listed[Literal["kernel", "python"]]
    missing: dict[str, str]


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
    file system that holds its file, whose inode is `backing_ino` (null: a loop device on a block
    device), and its first sector in it `backing_offset` (0 if absent). The data of bcache's device
    lies on `backing_dev`, which `on` names, too, from sector `backing_offset` on. `partition_of` is
    the disk of a partition, which begins at sector `start`."""

    name: str
    dev: str
    bytes: Count
    scheduler: str
    rotational: bool
    write_cache: str
    read_ahead_kb: Count
    backing_file: str
    backing_ino: Count | None
    backing_offset: Count
    backing_dev: str
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
    """Known events lost, gaps, and gaps of unknown size.

    `others`: gaps that lack no event, but names, stacks or samples.
    """

    events: Count
    windows: Count
    unknown: Count
    others: Count
