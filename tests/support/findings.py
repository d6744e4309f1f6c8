"""Rows of a job, its worker, the journal and the flusher, for small traces with findings."""

S = 1_000_000_000
DEV = "254:0"
JOB, WORKER, JBD2, FLUSHER = 7, 8, 30, 50
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"},
    {"pid": WORKER, "tid": WORKER, "role": "child", "target": "job", "comm": "pt_data_worker"},
    {"pid": JBD2, "tid": JBD2, "ppid": 2, "role": "journal", "comm": "jbd2/vda-8"},
    {"pid": FLUSHER, "tid": FLUSHER, "ppid": 2, "role": "flusher", "comm": "kworker/u8:1"},
]
A, B = 10, 20
CONTAINERS = [
    {"name": one, "role": "target", "kind": "container", "pid": pid, "container": one * 64}
    for one, pid in (("A", A), ("B", B))
]
OF_CONTAINERS = [
    {"pid": pid, "tid": pid, "role": "target", "target": one, "container_id": one * 64,
     "comm": "python"}
    for one, pid in (("A", A), ("B", B))
]  # fmt: skip
GAP = {"stream": "ftrace-machine", "cpu": 0, "cause": "overrun", "count": 9}


def phase(name, start, end, pid=JOB, **more):
    """A phase of a process, in s."""
    end = None if end is None else int(end * S)
    return {"pid": pid, "tid": pid, "name": name, "start": int(start * S), "end": end, **more}


def call(name, ts, dur, tid=JOB):
    """A system call, in s."""
    return {"ts": int(ts * S), "pid": tid, "tid": tid, "name": name, "dur_ns": int(dur * S)}


def off(ts, dur, tid=JOB, state="S", waker=None, ran=None, delay=0.0):
    """An interval off the CPU, in s."""
    start, length, late = int(ts * S), int(dur * S), int(delay * S)
    return {
        "ts": start, "dur_ns": length, "pid": tid, "tid": tid, "state": state, "ran_tid": ran,
        "wake_ns": start + length - late if waker is not None else None, "waker_tid": waker,
        "interrupt": None if waker is None else waker == 0, "run_delay_ns": late,
    }  # fmt: skip


def pause(ts, seconds, tid=JOB):
    """A sleep that the kernel imposes on who dirties pages, in s."""
    return {
        "ts": int(ts * S), "pid": tid, "tid": tid, "event": "balance_dirty_pages",
        "pause_ns": int(seconds * S),
    }  # fmt: skip


def faults(count, **more):
    """Makes `count` page faults of the job: major ones by default."""
    row = {"ts": 5 * S, "pid": JOB, "tid": JOB, "user": True, "kind": "major", **more}
    return [row] * count


def start(ts, reason):
    """A write-back that begins, in s."""
    return {"ts": int(ts * S), "tid": FLUSHER, "event": "start", "reason": reason, "bdi": DEV}


def bio(ts, page, pages, tid=FLUSHER, rwbs="W"):
    """A bio that is queued, in s and pages."""
    return {
        "ts": int(ts * S), "pid": tid, "tid": tid, "event": "bio_queue", "dev": DEV,
        "sector": page * 8, "nr_sector": pages * 8, "rwbs": rwbs,
    }  # fmt: skip


def chain(tid, dirtier, ino, at, page, pages):
    """An inode dirtied by one, and written out page by page in the context of another."""
    return {
        "dirty": [
            {"ts": int((at - 1) * S), "pid": dirtier, "tid": dirtier, "event": "dirty_folio",
             "dev": DEV, "ino": ino}
        ],
        "file_writes": [
            {"ts": int(at * S) - 10, "pid": tid, "tid": tid, "event": "writepages_start",
             "dev": DEV, "ino": ino, "sync_mode": 1}
        ],
        "block": [bio(at + n / 1e6, page + n, 1, tid) for n in range(pages)],
    }  # fmt: skip


def small(tables, sectors):
    """The same rows with bios of fewer sectors, one after the other on the disk."""
    first = tables["block"][0]["sector"]
    for n, row in enumerate(tables["block"]):
        row |= {"sector": first + n * sectors, "nr_sector": sectors}
    return tables


def merged(*parts):
    """The rows of several traces as those of one, in order of time."""
    tables = {}
    for part in parts:
        for table, rows in part.items():
            tables.setdefault(table, []).extend(rows)
    return {table: sorted(rows, key=lambda row: row.get("ts", 0)) for table, rows in tables.items()}


def request(ts, queue, service, page, tid=JOB, rwbs="R"):
    """The events of one request, in s."""
    common = {"pid": tid, "tid": tid, "dev": DEV, "sector": page * 8, "nr_sector": 8, "rwbs": rwbs}
    times = (("bio_queue", ts), ("issue", ts + queue), ("complete", ts + queue + service))
    return [{**common, "event": event, "ts": int(at * S)} for event, at in times]


def sample(ts, name, value, target=None, instance=None):
    """A sample, in s."""
    return {
        "ts": int(ts * S), "target": target, "name": name, "instance": instance, "value": value,
    }  # fmt: skip


TRAIN = [phase("train", 0, 100)]
FETCHED = [
    *TRAIN,
    phase("step", 10, 20, step=0),
    phase("fetch", 10, 15, step=0),
    phase("fetch", 10, 15, WORKER, step=0),
]
"""A step that waits for a worker for half of its time."""

LIMITED = {"pid": 40, "tid": 40, "role": "other", "comm": "kworker/0:1", "ppid": 2}
"""A thread of the kernel that logs the reads that a limit on the speed of a disk holds back."""
PLACED = {"file_systems": [{"dev": DEV, "block_bytes": 4096}]}
"""The manifest of a trace in which files have places on the disk."""


def file_at(page, pages, ino=12):
    """A file that lies on the disk from this page on."""
    row = {"dev": DEV, "ino": ino, "file_byte": 0, "disk_byte": page << 12, "bytes": pages << 12}
    return {"extent_map": [row]}


def cached(ts, index, pages, tid=JOB, ino=12):
    """Pages of a file that a thread asks for, in s: they come into the cache."""
    row = {"pid": tid, "tid": tid, "dev": DEV, "ino": ino, "pages": 1}
    asked = {**row, "ts": int(ts * S), "event": "sync_read_ahead", "index": index, "pages": pages}
    return [asked] + [
        {**row, "ts": int(ts * S) + 1 + n, "event": "add", "index": index + n} for n in range(pages)
    ]
