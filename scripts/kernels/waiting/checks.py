"""The checks of reads and sleeps: exact numbers for each load of `waiting/loads.py`."""

from __future__ import annotations

from collections.abc import Callable

from scripts.kernels.check import Check
from scripts.kernels.loads import PAGE
from scripts.kernels.recorded import Failed, Recorded, Skipped
from scripts.kernels.waiting import loads
from tracer.probes.events.page_cache import ACCESSES
from tracer.probes.events.sched import STACKS

_ASLEEP = "state SIMILAR TO '[SDTtPI].*'"


def _read(load: str, *names: str) -> Callable[[Recorded], None]:
    """Returns a check of the pages of files, as the load counted them."""

    def look(recorded: Recorded) -> None:
        said, dev = recorded.load(load)["said"], recorded.disk("ext4")["dev"]
        for name in names:
            columns = ", ".join(f"coalesce(sum({column})::INT, 0)" for column in said[name])
            try:
                recorded.expect(
                    [tuple(said[name].values())],
                    f"SELECT {columns} FROM reads WHERE dev = ? AND ino = ?",
                    dev,
                    said["inodes"][name],
                )
            except Failed as reason:
                raise Failed(f"{name} ({', '.join(said[name])}): {reason}") from None

    return look


def _are_inferred(recorded: Recorded) -> bool:
    return not recorded.has_event(ACCESSES)


def _inferred(recorded: Recorded) -> str:
    inferred = _are_inferred(recorded)
    recorded.expect([(inferred,)], "SELECT DISTINCT inferred FROM reads")
    return f"inferred: the kernel has no event {ACCESSES}" if inferred else ""


def _nameless(recorded: Recorded) -> None:
    load, dev = recorded.load("reading"), recorded.disk("ext4")["dev"]
    pages = loads.SIZES["nameless"]
    unplaced, accessed = (pages * PAGE, 0) if _are_inferred(recorded) else (0, pages)
    recorded.expect(
        [(unplaced, accessed)],
        "SELECT coalesce(sum(unplaced)::INT, 0), "
        "coalesce(sum(accessed) FILTER (dev = ? AND ino = ?)::INT, 0) FROM page_uses WHERE pid = ?",
        dev,
        load["said"]["inodes"]["nameless"],
        load["pid"],
    )


def _stacks(recorded: Recorded) -> None:
    """Raises Skipped if no kernel stacks were recorded, and Failed unless each sleep has one."""
    if not any(map(recorded.has_event, STACKS)):
        raise Skipped(f"the recording has no event {' or '.join(STACKS)}")
    recorded.expect(
        [(0, 0)],
        f"SELECT count(*) FILTER ({_ASLEEP} AND kernel_stack IS NULL), "
        f"count(*) FILTER (NOT {_ASLEEP} AND kernel_stack IS NOT NULL) "
        "FROM off_cpu WHERE state IS NOT NULL",
    )


def _slept(load: str, calls: tuple[str, ...], times: int, function: str) -> Check:
    """Returns a check of the sleeps in a system call: as many as the kernel counted, in a function.

    `times` is the number of calls.
    """

    def look(recorded: Recorded) -> None:
        _stacks(recorded)
        its = recorded.load(load)
        sleeps, pid = its["said"]["sleeps"], its["pid"]
        if not sleeps:
            raise Failed("the load did not sleep")
        made = f"FROM syscalls WHERE pid = {pid} AND name IN {calls}"
        recorded.expect([(times,)], f"SELECT count(*) {made}")
        recorded.expect(
            [(sleeps, sleeps)],
            "SELECT count(*), count(*) FILTER (contains(kernel_stack, ?)) FROM off_cpu o "
            f"JOIN (FROM syscalls WHERE pid = {pid} AND name IN {calls}) s ON o.tid = s.tid "
            f"AND o.ts >= s.ts AND o.ts < s.ts + s.dur_ns WHERE {_ASLEEP}",
            function,
        )

    return Check(f"sleeps in {times} calls of {calls[0]}: kernel stacks with {function}", look)


def _no_loss(recorded: Recorded) -> None:
    recorded.expect([], "SELECT stream, count, cause FROM loss ORDER BY ALL")


_BY_POSITION = ("in pieces", "at once", "at positions", "in order", "shared")
_BY_OFFSET = ("one by one", "far apart", "holes")
CHECKS = (
    Check("accesses of cached pages: logged or inferred, and said so", _inferred),
    Check(
        "reads by a file's position: pages accessed, missed, read", _read("reading", *_BY_POSITION)
    ),
    Check("pread in any order, far apart, of holes", _read("reading", *_BY_OFFSET)),
    Check("a file cached before the recording", _read("reading", "cached")),
    Check("a cached file without a name: found, or counted as unplaced", _nameless),
    Check("reads with O_DIRECT use no pages", _read("reading", "direct")),
    Check(f"{loads.SIZES['mapped']} pages of a mapped, cached file", _read("mapping", "mapped")),
    Check(
        f"{loads.SIZES['mapped at random']} pages of a mapped file at random, each missed",
        _read("mapping", "mapped at random"),
    ),
    _slept("sleeping", ("clock_nanosleep", "nanosleep"), loads.SLEEPS, "hrtimer_nanosleep"),
    _slept("asking", ("read",), loads.ANSWERS, "pipe_read"),
    _slept("syncing", ("fsync",), loads.SYNCS, "ext4_sync_file"),
    Check("nothing lost", _no_loss),
)
"""In the order of the table's rows."""
