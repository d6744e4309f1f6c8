"""A small block layer, driven by numbers: the events that a disk's requests give.

Kernel: block/blk-mq.c, blk-merge.c, blk-flush.c, include/trace/events/block.h.
"""

from __future__ import annotations

from typing import Any

LAST_SECTOR = (1 << 64) - 1
OPERATIONS = ("W", "WS", "R", "RA", "D", "W", "R", "FWFS")
LENGTHS = (8, 16, 24, 8)


class Disk:
    """A disk with one partition; each command is a number that says what happens next."""

    def __init__(self, dev: str, part: str, start_ns: int) -> None:
        self.dev, self.part, self.now = dev, part, start_ns
        self.events: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.lost_from: int | None = None
        self.waiting: list[dict[str, Any]] = []  # in the plug, or in the scheduler
        self.driver: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []  # bios that wait for a flush
        self.flushing: list[dict[str, Any]] = []
        self.scheduler: bool | None = None
        self.crowded: set[tuple[str, int]] = set()
        """Places at which several requests have waited since none did. Nothing merges there: no
        event tells which of them it is."""

    def log(self, event: str, sector: int, length: int, rwbs: str, **more: Any) -> None:
        if self.lost_from is not None:
            return  # no row
        row = {"ts": self.now, "event": event, "sector": sector, "nr_sector": length}
        row |= {"rwbs": rwbs, "dev": self.dev, "pid": 7, "tid": 7 + self.now % 3, "comm": "job"}
        self.events.append(row | more)

    def do(self, command: int) -> None:
        """Do what the number says; nothing where it cannot be."""
        if self.scheduler is None:
            self.scheduler = command % 2 == 1
        command, what = divmod(command, 16)
        command, step = divmod(command, 2)
        self.now += 2 * step  # an even time; gaps have odd ones
        if what < 6:
            self.submit(command)
        elif what < 8:
            self.issue(command)
        elif what < 11:
            self.complete(command)
        elif what == 11:
            self.requeue(command)
        elif what == 12:
            self.insert_or_merge(command)
        elif what == 13:
            self.flush(command)
        elif what == 14:
            self.lose(command)
        else:
            self.stray(command)

    def submit(self, command: int) -> None:
        command, place = divmod(command, 4)
        command, length = divmod(command, 4)
        command, kind = divmod(command, len(OPERATIONS))
        command, fate = divmod(command, 8)
        rwbs, sector, length = OPERATIONS[kind], (0, 64, 72, 80)[place], LENGTHS[length]
        dev = self.part if command % 2 else self.dev
        if rwbs[0] == "F" and place == 0:
            length, rwbs = 0, "FWS"
        self.log("bio_queue", sector, length, rwbs, dev=dev)
        bio = {"sector": sector, "length": length, "rwbs": rwbs, "inserted": False}
        bio["back"] = False
        if fate == 0:
            return  # it fails before it is a request
        if rwbs[0] == "F":
            self.pending.append(bio)
            return
        alike = [r for r in self.waiting if r["rwbs"][0] == rwbs[0] and self.merges(r)]
        for request in alike if fate < 6 else []:
            if request["sector"] + request["length"] == sector:
                request["length"] += length
                self.log("backmerge", sector, length, rwbs, dev=dev)
                return
            alone = all(self.place(r) != (rwbs[0], sector) for r in self.waiting)
            if sector + length == request["sector"] and alone:
                self.crowded.discard((rwbs[0], sector))
                request |= {"sector": sector, "length": request["length"] + length}
                self.log("frontmerge", sector, length, rwbs, dev=dev)
                return
        if fate == 7 and length > 8:
            bio["length"] = 8
            self.waits(bio | {"sector": sector + 8, "length": length - 8})
        for request in [r for r in self.waiting if self.place(r) == self.place(bio)]:
            self.insert(request)
        self.waits(bio)
        if fate % 2:
            self.insert(bio)

    @staticmethod
    def place(request: dict[str, Any]) -> tuple[str, int]:
        return request["rwbs"][0], request["sector"]

    def waits(self, request: dict[str, Any]) -> None:
        place = self.place(request)
        if all(self.place(r) != place for r in self.waiting):
            self.crowded.discard(place)
        else:
            self.crowded.add(place)
        self.waiting.append(request)

    def merges(self, request: dict[str, Any]) -> bool:
        """Returns whether a bio or a request may be merged into it."""
        return not request["back"] and self.place(request) not in self.crowded

    def insert(self, request: dict[str, Any]) -> None:
        if request["inserted"] or not self.scheduler or request["rwbs"] == "FF":
            return
        request["inserted"] = True
        self.log("insert", request["sector"], request["length"], request["rwbs"])

    def insert_or_merge(self, command: int) -> None:
        for request in self.waiting:
            for behind in self.waiting:
                if (
                    request["sector"] + request["length"] == behind["sector"]
                    and request["rwbs"][0] == behind["rwbs"][0]
                    and self.merges(request)
                    and self.merges(behind)
                    and command % 2
                ):
                    self.waiting.remove(behind)
                    self.log("rq_merge", behind["sector"], behind["length"], behind["rwbs"])
                    request["length"] += behind["length"]
                    return
        for request in self.waiting:
            if not request["inserted"]:
                self.insert(request)
                return

    def issue(self, command: int) -> None:
        if self.waiting:
            chosen = self.waiting[command % len(self.waiting)]
            # A scheduler issues requests at one place in their order.
            request = next(r for r in self.waiting if self.place(r) == self.place(chosen))
            if not request["back"]:
                self.insert(request)
            self.waiting.remove(request)
            self.driver.append(request)
            self.log("issue", request["sector"], request["length"], request["rwbs"])

    def complete(self, command: int) -> None:
        if not self.driver:
            return
        command, which = divmod(command, len(self.driver))
        command, part = divmod(command, 4)
        request = self.driver[which]
        done = 8 if part == 0 and request["length"] > 8 else request["length"]
        sector = LAST_SECTOR if request["rwbs"] == "FF" else request["sector"]
        error = -5 if command % 8 == 7 else 0
        self.log("complete", sector, done, request["rwbs"], error=error)
        if done < request["length"]:
            request |= {"sector": sector + done, "length": request["length"] - done}
            return
        self.driver.remove(request)
        if request["rwbs"] == "FF":
            for bio in self.flushing:
                if bio["length"]:
                    self.waits(bio | {"rwbs": "WS"})
                else:
                    self.log("complete", bio["sector"], 0, "WS", error=error)
            self.flushing = []

    def requeue(self, command: int) -> None:
        if self.driver:
            command, which = divmod(command, len(self.driver))
            request = self.driver.pop(which)
            self.log("requeue", request["sector"], request["length"], request["rwbs"])
            request |= {"inserted": False, "back": True}
            self.waiting.insert(0, request)
            if command % 4 == 0 and request["rwbs"] != "FF":
                self.insert(request)

    def flush(self, command: int) -> None:
        running = any(r["rwbs"] == "FF" for r in self.driver + self.waiting)
        if not running and (self.pending or command % 8 == 0):  # or a write that has FUA
            self.flushing, self.pending = self.pending, []
            flush = {"sector": 0, "length": 0, "rwbs": "FF", "inserted": False, "back": False}
            self.driver.append(flush)
            self.log("issue", 0, 0, "FF")

    def lose(self, command: int) -> None:
        """Begin or end a gap: what happens in it has no row."""
        if self.lost_from is None and command % 4 == 0:
            self.lost_from = self.now + 1
            self.now += 2
        elif self.lost_from is not None:
            self.now += 2
            gap = {"stream": "machine-cpu0", "cpu": 0, "cause": "buffer overrun"}
            self.gaps.append(gap | {"from": self.lost_from, "to": self.now - 1})
            self.lost_from = None

    def stray(self, command: int) -> None:
        """Complete a request that was issued before the recording began."""
        if command % 4 == 0:
            self.log("complete", 64 + 8 * (command // 4 % 3), 8, "W", error=0)

    def nonsense(self, command: int) -> None:
        """Log any event at all."""
        command, step = divmod(command, 2)
        self.now += 2 * step
        command, name = divmod(command, len(EVENTS))
        command, kind = divmod(command, 4)
        command, length = divmod(command, 3)
        rwbs = ("W", "R", "D", "FF")[kind]
        if rwbs == "FF":
            name, length, sector = 4 + name % 4, -1, 0
        else:
            sector = 64 + 8 * (command % 3)
        more = {"error": 0} if EVENTS[name] == "complete" else {}
        self.log(EVENTS[name], sector, 8 * (length + 1), rwbs, **more)


EVENTS = (
    "bio_queue",
    "backmerge",
    "frontmerge",
    "insert",
    "issue",
    "requeue",
    "complete",
    "complete",
    "issue",
    "bio_queue",
    "rq_merge",
)
