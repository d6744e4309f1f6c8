"""Rows of traces in which write bios come from somewhere: threads, devices, and their events."""

from tests.support.traces import make_trace
from tracer.analysis.views.writing.flushes import flushes

KWORKER, HELPER, JOB, OTHER = 50, 51, 7, 8
DEV, ANOTHER, BDI, FSID = "254:0", "254:16", "btrfs-1", "35cbcaf9-a890-4565-b69e-e6ec26acd374"
BTRFS = [{"fsid": FSID, "bdi": BDI, "dev": "0:50", "devices": [DEV]}]

PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": KWORKER, "tid": KWORKER, "ppid": 2, "role": "flusher"},
    {"pid": HELPER, "tid": HELPER, "ppid": 2, "role": "other"},
]


def bio(ts, tid=JOB, rwbs="W", dev=DEV):
    return {
        "ts": ts,
        "tid": tid,
        "pid": tid,
        "event": "bio_queue",
        "dev": dev,
        "sector": 8 * ts,
        "nr_sector": 8,
        "rwbs": rwbs,
    }


def said(ts, event, ino=None, tid=JOB, dev=DEV, **more):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "dev": dev, "ino": ino, **more}


def of_btrfs(ts, event, ino=None, tid=JOB, root=5, **more):
    return said(ts, event, ino, tid, None, fsid=FSID, root=root, **more)


def work(ts, event, tid, item):
    return {"ts": ts, "tid": tid, "pid": tid, "event": event, "fsid": FSID, "work": item}


def call(ts, name, dur=100, tid=JOB):
    return {"ts": ts, "tid": tid, "pid": tid, "nr": 1, "name": name, "dur_ns": dur}


def found(tmp_path, columns, tables, **manifest):
    with make_trace(tmp_path / "t", {"processes": PROCESSES, **tables}, **manifest) as trace:
        flushes(trace)
        return trace.connection.execute(f"SELECT {columns} FROM flushes ORDER BY ts").fetchall()


def gap(stream, start, end):
    return {"stream": stream, "cpu": 0, "from": start, "to": end, "count": 1, "cause": "overrun"}
