"""Threads that had a CPU while another one waited for it, ns by ns.

It is written from docs/explain.md (Waits, Limits), not from the views' code.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import NamedTuple

from tests.oracles.cpu_world import IDLE, Row, Thread, Turn, World

MOST_PARTS = 8
LEAST_NS = 10**6
NOBODY = (None, "inferred")


class Part(NamedTuple):
    """A part of a wait for a CPU: when, how long, for whom."""

    ts: int
    dur_ns: int
    by_comm: str | None
    certainty: str


class Charged(World):
    """A world that tells who had the CPUs while its threads waited."""

    def waits(self, stopped: dict[int, list[tuple[int, int]]]) -> list[tuple[int, list[Part]]]:
        """The number of the thread, and the parts, of each wait for a CPU of a known length.

        `stopped`: the times in which threads were throttled, by the threads' numbers.
        """
        found = []
        for row in self.off_cpu:
            turn = row["turn"]
            if not row["dur_ns"] or turn is None or not row["run_delay_ns"]:
                continue
            assert turn.told is not None
            since = turn.told - row["run_delay_ns"]
            parts: list[Part] = []
            for begin, end in without(since, turn.told, stopped.get(row["tid"], [])):
                in_doubt = row.get("cpu") != turn.cpu or (
                    (turn.told - since) * self.unit >= LEAST_NS
                    and self.may_be_throttled(begin, turn.told)
                )
                parts += self.parts(row, begin, end, in_doubt)
            found.append((row["tid"], parts))
        return found

    def waited(self) -> int:
        """The time of all waits for a CPU of a known length."""
        known = [row for row in self.off_cpu if row["dur_ns"] and row["turn"] is not None]
        return sum(row["run_delay_ns"] for row in known)

    def may_be_throttled(self, begin: int, ended: int) -> bool:
        """Returns True if a thread that ran at the end may have been throttled, by the samples."""
        if not any(value for _, value in self.readings):
            return False  # it has not used up a quota in the recording
        never, always = self.start - 10**6, self.end + 10**6
        times = [never, never, *(ts for ts, _ in self.readings), always]
        values = [None, *(value for _, value in self.readings[1:]), None]
        # Each sample, and the time after the last one, tells of the time since the last but one.
        windows = zip(times, times[2:], values, strict=False)
        return any(value != 0 and since < ended and begin < upto for since, upto, value in windows)

    def parts(self, row: Row, since: int, upto: int, in_doubt: bool) -> list[Part]:
        """The parts of a wait, as far as it lies between two times."""
        turn: Turn = row["turn"]
        ended = turn.told
        assert ended is not None
        idle, stayed = turn.before == IDLE, row["cpu"] == turn.cpu
        if idle and stayed:
            return [Part(since, upto - since, *named(IDLE))]
        long = any(value for _, value in self.readings) and row["run_delay_ns"] * self.unit
        if idle and (row["state"] == "S" or row["cpu"] is None or long >= LEAST_NS):
            return [Part(since, upto - since, *NOBODY)]
        cpu = row["cpu"] if idle else turn.cpu
        on_cpu = [one for one in self.turns if one.cpu == cpu and one.told is not None]
        on_cpu.sort(key=lambda one: one.told or 0)  # turns of one time keep their order
        if idle:
            at = [self.who_left(on_cpu, ts, row) for ts in range(since, upto)]
        else:
            at = [self.who(on_cpu, ts, since, ended) for ts in range(since, upto)]
        groups = [(who, len(list(same))) for who, same in groupby(at)]
        if len(groups) > MOST_PARTS:
            sums = Counter[tuple[str | None, str]]()
            for who, length in groups:
                sums[who] += length
            of = {one.name: (one.number, one.born or 0) for one in self.threads}
            known = [one for one in sums.items() if one[0] != NOBODY]
            known.sort(key=lambda one: (-one[1], of[str(one[0][0])], one[0][1]))
            groups = known[:MOST_PARTS]
            rest = upto - since - sum(length for _, length in groups)
            groups += [(NOBODY, rest)] if rest else []
        edges = [since]
        for _, length in groups:
            edges.append(edges[-1] + length)
        return [
            Part(begin, end - begin, name, "inferred" if in_doubt else certainty)
            for ((name, certainty), _), (begin, end) in zip(groups, pairwise(edges), strict=True)
        ]

    def who(self, on_cpu: list[Turn], ts: int, since: int, ended: int) -> tuple[str | None, str]:
        """Returns who had a CPU at a time, for a thread that waits for it until `ended`."""
        begun = [one for one in on_cpu if (one.told or 0) <= ts]
        later = [one for one in on_cpu if (one.told or 0) > ts]
        until = [one for one in later if (one.told or 0) < ended]
        following = later[: len(until) + 1]
        if any(one.before == IDLE for one in following):
            return NOBODY  # the thread waited elsewhere
        if any(ts < one.end <= ended and self.got_after(one) == IDLE for one in [*begun, *until]):
            return NOBODY
        if not begun:
            return inferred(following[0].before)
        end, last = self.known_end(begun[-1]), following[0].before
        if ts < end or begun[-1].thread is last:
            return named(begun[-1].thread)
        first = self.got_after(begun[-1])
        if not isinstance(first, Thread) or not isinstance(last, Thread):
            return inferred(last)
        if first.kernel != last.kernel and (first.kernel or since <= end):
            return inferred(last if first.kernel else first)
        return inferred(first if ts < (end + (following[0].told or 0)) // 2 else last)

    def who_left(self, on_cpu: list[Turn], ts: int, row: Row) -> tuple[str | None, str]:
        """Returns who had a CPU at a time, for a thread that left it without a turn."""
        since, ended = row["ts"], row["turn"].told
        begun = [one for one in on_cpu if (one.told or 0) <= ts]
        over = [one for one in begun if since <= self.known_end(one) <= ts]
        over = [
            one for one in over if self.known_end(one) > since or one.thread is row["thread"]
        ]  # fmt: skip
        if any(one.before == IDLE for one in begun if since < (one.told or 0)):
            return NOBODY
        following = next((one for one in on_cpu if ts < (one.told or 0)), None)
        if begun and (latest := begun[-1].thread) is not None:
            stays = following is not None and following.before is latest
            if stays or ts < self.known_end(begun[-1]):
                return inferred(latest) if latest is not row["thread"] else NOBODY
        if any(self.got_after(one) == IDLE for one in over):
            return NOBODY
        known = following is not None and (following.told or 0) < ended
        last = following.before if following is not None and known else None
        first = self.got_after(begun[-1]) if begun and begun[-1] in over else None
        if not isinstance(last, Thread):
            return inferred(first)
        if not isinstance(first, Thread) or following is None:
            return inferred(last)
        end = self.known_end(begun[-1])
        if first.kernel != last.kernel and (first.kernel or since <= end):
            return inferred(last if first.kernel else first)
        return inferred(first if ts < (end + (following.told or 0)) // 2 else last)

    def got_after(self, turn: Turn) -> Thread | str | None:
        """Returns who got the CPU from a turn; None: no row tells."""
        known = self.known_end(turn) == turn.end
        return next((row["got"] for row in self.off_cpu if known and row.get("of") is turn), None)

    def known_end(self, turn: Turn) -> int:
        assert turn.thread is not None and turn.told is not None
        end = turn.end
        if turn.thread.gone is not None and turn.thread.left == turn.end:
            end = turn.thread.gone
        for lost in self.loss:
            if turn.told <= lost["from"]:
                end = min(end, lost["from"])
        return end


def inferred(thread: Thread | str | None) -> tuple[str | None, str]:
    return named(thread)[0], "inferred"


def named(thread: Thread | str | None) -> tuple[str | None, str]:
    """Returns the name and the certainty of whoever had a CPU."""
    if isinstance(thread, Thread):
        return thread.name, "exact"
    return (None, "exact") if thread == IDLE else NOBODY


def without(begin: int, end: int, times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the parts of a time that lie in none of these, which do not overlap."""
    inside = [(since, upto) for since, upto in sorted(times) if begin <= since < end]
    edges = [begin, *(edge for time in inside for edge in time), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
