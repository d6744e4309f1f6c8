"""The checks of a recording: exact numbers for each load of `loads.py`."""

from __future__ import annotations

from collections.abc import Callable

from scripts.kernels import loads
from scripts.kernels.check import Check
from scripts.kernels.disks import KINDS
from scripts.kernels.recorded import Recorded


def _no_loss(recorded: Recorded) -> None:
    recorded.expect([], "SELECT stream, count, cause FROM loss ORDER BY ALL")


def _calls(recorded: Recorded) -> None:
    recorded.expect(
        [(loads.CALLS,)],
        "SELECT count(*) FROM syscalls WHERE name = 'getppid' AND pid = ?",
        recorded.load("calls")["pid"],
    )


def _faults_of(recorded: Recorded, name: str, pages: int, kind: str = "minor") -> None:
    load = recorded.load(name)
    # perf's events, which tell of faults where tracepoints do not, know no access.
    access = "write" if recorded.has_event("exceptions:page_fault_user") else None
    recorded.expect(
        [(kind, access, pages, pages)],
        "SELECT kind, access, count(*), count(DISTINCT address // 4096) FROM page_faults "
        "WHERE pid = ? AND address >= ? AND address < ? GROUP BY ALL ORDER BY ALL",
        load["pid"],
        load["said"]["start"],
        load["said"]["end"],
    )


def _faults(recorded: Recorded) -> None:
    _faults_of(recorded, "faults", loads.FAULTS)


def _shared_faults(recorded: Recorded) -> None:
    # A kernel that counts them as major does not tell which ones read.
    retried = recorded.trace.manifest["kernel"]["retries_are_major"]
    _faults_of(recorded, "shared faults", loads.SHARED, "unknown" if retried else "minor")


def _syncs(recorded: Recorded) -> None:
    disk, load = recorded.disk("ext4"), recorded.load("syncs")
    recorded.expect(
        [(loads.SYNCS,)],
        "SELECT count(*) FROM syscalls WHERE name = 'fsync' AND pid = ?",
        load["pid"],
    )
    # The view takes the file from `file_writes`, and the pages from `block`.
    recorded.expect(
        [("fsync", "fsync", "exact", load["pid"], loads.SYNCS * loads.SYNC_PAGES)],
        "SELECT reason, call, certainty, dirtier, sum(pages)::INT FROM flushes "
        "WHERE dev = ? AND ino = ? AND NOT contains(rwbs, 'M') GROUP BY ALL ORDER BY ALL",
        disk["dev"],
        load["said"]["ino"],
    )


def _written(kind: str) -> Callable[[Recorded], None]:
    def look(recorded: Recorded) -> None:
        disk, load = recorded.disk(kind), recorded.load(f"written {kind}")
        fsynced, left = load["said"]["fsynced"], load["said"]["left"]
        recorded.expect(
            [
                (fsynced, "fsync", "fsync", "exact", load["pid"], loads.FSYNCED),
                (left, "sync", None, "exact", load["pid"], loads.LEFT),
            ],
            "SELECT ino, reason, call, certainty, dirtier, sum(pages)::INT FROM flushes "
            "WHERE dev = ? AND ino IN (?, ?) AND NOT contains(rwbs, 'M') "
            "GROUP BY ALL ORDER BY reason, ino",
            disk["dev"],
            fsynced,
            left,
        )

    return look


def _direct(recorded: Recorded) -> None:
    disk, load = recorded.disk("ext4"), recorded.load("direct")
    sectors = loads.DIRECT_PAGES * 8
    # The fsync before the direct writes tells where the file lies.
    where = f"dev = '{disk['dev']}' AND ino = {load['said']['ino']} AND call = 'fsync'"
    place = (
        "(SELECT min(sector) AS first, max(sector + nr_sector) AS last, max(ts) AS laid "
        f"FROM flushes WHERE {where})"
    )
    recorded.expect(
        [
            ("read", loads.DIRECT_READS, sectors, sectors, 0),
            ("write", loads.DIRECT_WRITES, sectors, sectors, 0),
        ],
        "SELECT operation, count(*), min(nr_sector), max(nr_sector), "
        f"count(*) FILTER (complete_ns IS NULL) FROM requests, {place} "
        "WHERE dev = ? AND sector >= first AND sector < last AND queue_ns > laid "
        "GROUP BY ALL ORDER BY ALL",
        disk["dev"],
    )
    # Without an event of direct I/O the system call is what tells it.
    certainty = "exact" if recorded.has_event("iomap:iomap_dio_rw_begin") else "inferred"
    recorded.expect(
        [("direct", certainty, loads.DIRECT_WRITES, loads.DIRECT_WRITES * loads.DIRECT_PAGES)],
        f"SELECT reason, certainty, count(*), sum(pages)::INT FROM flushes, {place} "
        "WHERE dev = ? AND sector >= first AND sector < last AND ts > laid "
        "GROUP BY ALL ORDER BY ALL",
        disk["dev"],
    )


def _cgroup(recorded: Recorded) -> None:
    # The member has made other calls after it left the cgroup.
    recorded.expect(
        [(loads.IN_CGROUP,)],
        "SELECT count(*) FROM syscalls WHERE name = 'times' AND pid = ?",
        recorded.load("joined")["said"]["member"],
    )


CHECKS = (
    Check(f"{loads.CALLS} system calls", _calls),
    Check(f"{loads.FAULTS} faults of fresh private memory are minor", _faults),
    Check(f"{loads.SHARED} faults of fresh shared memory are not major", _shared_faults),
    Check(f"{loads.SYNCS} fsyncs of {loads.SYNC_PAGES} pages on ext4", _syncs),
    *(Check(f"pages written on {kind}: file, reason, process", _written(kind)) for kind in KINDS),
    Check(f"{loads.DIRECT_WRITES} direct writes, {loads.DIRECT_READS} direct reads", _direct),
    Check(f"{loads.IN_CGROUP} system calls in a cgroup (version 2)", _cgroup),
    Check("nothing lost", _no_loss),
)
"""In the order of the table's rows."""
DOCTOR = "tracer doctor told whether it records"
"""The title of the check that needs no recording."""
