"""A simulated kernel: random programs read, map and write files, and others take their pages.

It logs the rows that probes/events/page_cache.py documents, and keeps the true counts meanwhile.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.oracles.cached_files import BATCH, PAGE, WINDOW, Access, Account, File, Process, Thread

Row = dict[str, Any]
Steps = Iterator[None]
"""An operation, which others may interrupt at each step."""
READS = ("read", "pread64", "readv", "preadv", "preadv2")
TABLES = (
    *("page_cache", "syscalls", "reclaim", "block", "off_cpu", "phases", "processes", "files"),
    "dirty",
)


class Kernel:
    """The events of the page cache, and what causes them."""

    def __init__(self, numbers: random.Random, options: Row) -> None:
        self.numbers, self.options = numbers, options
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.account = Account()
        self.now, self.last = 1000, (-1, "")
        self.files: list[File] = []
        self.kswapd = Thread(Process(50, None), 50, recorded=False)

    def chance(self, share: float) -> bool:
        return self.numbers.random() < share

    def time(self, thread: Thread, table: str) -> int:
        """A time later than the last; or the same one, of events of two CPUs in one table."""
        same = table == "page_cache" == self.last[1] and thread.cpu != self.last[0]
        self.now += self.numbers.choice([0, 1]) if same else self.numbers.choice([1, 2, 5])
        self.last = thread.cpu, table
        return self.now

    def log(self, table: str, thread: Thread, **row: Any) -> Row:
        row |= {"ts": self.time(thread, table), "cpu": thread.cpu}
        row |= {"pid": thread.process.pid, "tid": thread.tid}
        self.tables[table].append(row)
        return row

    def event(self, thread: Thread, file: File, event: str, index: int, pages: int, **more: Any):
        place = {"dev": file.dev, "ino": file.ino, "index": index, "pages": pages}
        self.log("page_cache", thread, event=event, **place, **more)

    def call(self, thread: Thread, name: str) -> Row:
        """The begin of a call, which `done` ends."""
        thread.called = True
        thread.begun = thread.begun or thread.recorded
        return {"ts": self.time(thread, "call"), "name": name, "tid": thread.tid}

    def done(self, thread: Thread, call: Row, ret: int) -> None:
        ended = self.time(thread, "call")
        if thread.recorded:
            call |= {"pid": thread.process.pid, "cpu": thread.cpu}
            self.tables["syscalls"].append(call | {"ret": ret, "dur_ns": ended - call["ts"]})
            thread.returned = thread.returned or (ret > 0 and call["name"] in READS)

    # Pages that come

    def bring(self, access: Access, first: int, pages: int) -> Steps:
        """Reads pages of the file that are not in the cache; reclaims some before, if need be."""
        thread, file = access.thread, access.file
        wanted = [p for p in range(first, min(first + pages, file.size)) if p not in file.folios]
        if wanted and self.chance(self.options.get("reclaims", 0.15)):
            yield from self.reclaim(thread)
            wanted = [p for p in wanted if p not in file.folios]
        brought: list[int] = []
        while wanted:
            page, length = wanted[0], 1
            if self.chance(0.3):
                length = self.numbers.choice([2, 4, 8])
            if page % length or wanted[:length] != list(range(page, page + length)):
                length = 1
            brought += range(page, page + length)
            self.event(thread, file, "add", page, length)
            self.account.come(file, page, length, thread, access)
            if self.chance(0.1):
                yield
            wanted = [p for p in wanted[length:] if p not in file.folios]
        queued = [page for page in brought if page not in file.holes]
        for at, page in enumerate(queued):
            if at == 0 or page != queued[at - 1] + 1:
                run = next(n for n in range(1, len(queued) + 1) if page + n not in queued)
                self.bio(thread, run, self.numbers.choice(["R", "RA"]))
                self.account.add(file, thread, disk_bytes=run * PAGE)
        if self.chance(0.1):
            self.bio(thread, 1, self.numbers.choice(["RM", "RAM", "W", "WS"]))
        yield

    def bio(self, thread: Thread, pages: int, rwbs: str) -> None:
        sector = self.numbers.randrange(1 << 30) * 8
        row = {"dev": "254:0", "sector": sector, "nr_sector": 8 * pages, "rwbs": rwbs}
        self.log("block", thread, event="bio_queue", **row)
        if self.chance(0.3):
            self.log("block", thread, event="issue", **row)

    def ahead(self, access: Access, first: int, pages: int) -> Steps:
        """Reads pages ahead; one of them gets the mark, mostly."""
        parts = [(first, pages)]
        if pages > 4 and self.chance(0.2):
            parts = [(first, pages // 2), (first + pages // 2, pages - pages // 2)]
        for begin, length in parts:
            self.event(access.thread, access.file, "read_ahead", begin, length)
            yield from self.bring(access, begin, length)
        mark = first + self.numbers.randrange(pages)
        if mark in access.own and mark in access.file.folios and self.chance(0.7):
            access.file.marks.add(access.file.folios[mark][0])

    def wait(self, access: Access) -> Steps:
        """Waits for the device in the call that queued the read."""
        yield
        thread = access.thread
        if access.own and thread.recorded and thread.process.target and self.chance(0.5):
            begun = self.time(thread, "off_cpu")
            self.now += self.numbers.randrange(2, 99)
            waited = self.now - begun
            self.tables["off_cpu"].append(
                {"ts": begun, "dur_ns": waited, "pid": thread.process.pid, "tid": thread.tid}
                | {"state": "D", "wake_ns": self.now, "waker_tid": 0, "interrupt": True}
                | {"run_delay_ns": 0, "cpu": thread.cpu}
            )
            self.account.add(access.file, thread, wait_ns=waited)

    def wait_past_the_cache(self, thread: Thread) -> None:
        """Waits for a read that is of no file."""
        if thread.recorded and thread.process.target:
            self.now, self.last = self.now + 9, (-1, "")
            sleep = {"ts": self.now - 8, "dur_ns": 7, "wake_ns": self.now - 1, "state": "D"}
            sleep |= {"waker_tid": 0, "interrupt": True, "run_delay_ns": 0, "cpu": thread.cpu}
            sleep |= {"pid": thread.process.pid, "tid": thread.tid}
            self.tables["off_cpu"].append(sleep)

    # Pages that are read by calls

    def pread(self, thread: Thread, file: File, first: int, pages: int, whole: bool) -> Steps:
        """A read of pages, beyond the end of the file perhaps; `whole` for whole pages."""
        access, last = Access(thread, file), first + pages - 1
        hidden: set[int] = set()
        end, at = min(last, file.size - 1), first
        file.calls[access] = range(first, last + 1)
        known = thread.recorded and thread.begun
        while at <= end:
            if at not in file.folios:
                self.event(thread, file, "sync_read_ahead", at, last - at + 1)
                asked = self.numbers.choice([1, last - at + 1, 4, 16, 32, 40])
                yield from self.ahead(access, at, asked)
                yield from self.wait(access)
            if at not in file.folios:
                continue  # someone took it meanwhile
            batch = self.batch(file, at, end)
            mark = file.folios[batch[-1]][0]
            if mark in file.marks:
                file.marks.discard(mark)
                self.event(thread, file, "async_read_ahead", mark, last - mark + 1)
                held = Counter(batch)  # nobody takes the folios of a batch
                file.busy += held
                yield from self.ahead(access, mark + 1, self.numbers.choice([4, 16, 32]))
                file.busy -= held
            elif whole and len(batch) > 1 and known and self.chance(0.1):
                batch.pop()  # still being read: the kernel logs nothing of the batch
                user, ahead = file.user, file.ahead & set(batch)
                self.account.use(access, set(batch), set(batch))
                file.user = user
                file.ahead |= ahead  # used for the view when the call returns
                hidden |= ahead
                at = batch[-1] + 1
                continue
            continues = not thread.called if known else None
            self.event(thread, file, "access", at, last - at + 1, continues=continues)
            thread.called = thread.called and not known
            self.account.use(access, set(batch), set(batch))
            at = batch[-1] + 1
            yield
        file.ahead -= hidden
        del file.calls[access]
        file.busy.subtract(dict.fromkeys(access.own, 1))

    def batch(self, file: File, first: int, end: int) -> list[int]:
        """Cached pages from the first on: of 31 folios, and not beyond a mark."""
        found: list[int] = []
        for _ in range(BATCH):
            page = found[-1] + 1 if found else first
            if page > end or page not in file.folios:
                break
            begin, length = file.folios[page]
            found += range(page, min(begin + length, end + 1))
            if begin in file.marks:
                break
        return found

    # Pages that are mapped

    def touch(self, thread: Thread, file: File, page: int, around: bool) -> Steps:
        """A thread touches a page of a mapped file; pages around it are mapped, or are not."""
        table, access = thread.process.tables[file], Access(thread, file)
        faulted = False
        while page not in table:
            if around:
                self.map(access, page, faulted)
                if page in table:
                    break
            self.event(thread, file, "fault", page, 1)
            ready = page in file.folios and (faulted or file.folios[page][0] not in file.marks)
            if not ready:
                yield from self.fault(access, page)
            if page not in file.folios:
                continue
            if not faulted:
                faulted = True
                self.account.use(access, {page}, {page})
            if ready:
                table.add(page)
                if not around and file.ino % 8 == 0 and self.options.get("maps_written_folios"):
                    self.write_to_mapping(access, page)
            yield
        file.busy.subtract(dict.fromkeys(access.own, 1))

    def map(self, access: Access, page: int, faulted: bool) -> None:
        file, table = access.file, access.thread.process.tables[access.file]
        first = page - page % WINDOW
        window = range(first, min(first + WINDOW, file.size))
        # (A kernel leaves out the page with the mark, but no event tells which one that is.)
        there = {p for p in window if p in file.folios}
        if not there:
            return
        if self.options.get("maps_folios"):
            for begin, length in {file.folios[p] for p in there}:
                if begin + length < file.size:
                    there |= set(range(begin, begin + length))
        self.event(access.thread, file, "map", first, len(window))
        new = there - table
        table |= new
        if faulted:
            new.discard(page)
        self.account.use(access, new, set(), mapped=len(new))

    def write_to_mapping(self, access: Access, page: int) -> None:
        """A fault writes through a shared mapping: all of a clean folio is mapped, and dirty."""
        file, table = access.file, access.thread.process.tables[access.file]
        begin, length = file.folios[page]
        row = {"event": "dirty_folio", "dev": file.dev, "ino": file.ino, "index": begin}
        self.log("dirty", access.thread, **row)
        others = set(range(begin, begin + length)) - {page}
        if not others & table:
            table |= others
            self.account.use(access, others, set(), mapped=len(others))

    def fault(self, access: Access, page: int) -> Steps:
        """A fault reads what it lacks."""
        thread, file = access.thread, access.file
        if page in file.folios:
            mark = file.folios[page][0]
            if mark in file.marks:
                file.marks.discard(mark)
                self.event(thread, file, "async_read_ahead", mark, 1)
                yield from self.ahead(access, mark + 1, self.numbers.choice([4, 16, 32]))
            return
        match self.numbers.choice(["alone", "around", "sync"]):
            case "alone":
                yield from self.bring(access, page, 1)
            case "around":
                first = max(0, page - self.numbers.choice([0, 4, 16]))
                yield from self.ahead(access, first, page - first + self.numbers.choice([1, 16]))
            case "sync":
                self.event(thread, file, "sync_read_ahead", page, 1)
                yield from self.ahead(access, page, self.numbers.choice([1, 8, 32]))

    # Pages that go

    def free(self, file: File, page: int) -> bool:
        """Returns false for pages being read, and for unused ones that a call has yet to reach.

        (The view counts all of a call at its first access, and would take those for used. Those of
        a batch that is not logged would count as unused: it counts them when the call returns.)
        """
        begin, length = file.folios[page]
        wanted = {p for pages in file.calls.values() for p in pages}
        pages = set(range(begin, begin + length))
        return not any(file.busy[p] > 0 for p in pages) and not pages & file.ahead & wanted

    def delete(self, thread: Thread, file: File, page: int, evicted: bool) -> None:
        begin, length = file.folios[page]
        split = length > 1 and self.chance(0.2)
        for first in range(begin, begin + length) if split else [begin]:
            pages = 1 if split else length
            self.event(thread, file, "delete", first, pages)
            self.account.go(file, first, pages, thread, evicted)
        for process in self.processes:
            process.tables[file].difference_update(range(begin, begin + length))

    def take(self, thread: Thread, share: float) -> Steps:
        """Evicts a share of the pages of some file."""
        file = self.numbers.choice(self.files)
        for page in list(file.folios):
            if page in file.folios and self.free(file, page) and self.chance(share):
                self.delete(thread, file, page, evicted=True)
                if self.chance(0.1):
                    yield

    def reclaim(self, thread: Thread) -> Steps:
        kind = self.numbers.choice(["direct", "memcg"])
        self.log("reclaim", thread, event=f"{kind}_begin")
        yield from self.take(thread, self.numbers.choice([0.1, 0.5]))
        self.log("reclaim", thread, event=f"{kind}_end", nr_reclaimed=1)

    processes: list[Process]
