"""Random programs that use the simulated page cache, and their schedule."""

from __future__ import annotations

import random
from typing import Any

from tests.oracles.cached_files import PAGE, Access, File, Key, Process, Thread
from tests.oracles.page_cache import READS, Kernel, Steps

Row = dict[str, Any]
DEVICES = ("254:0", "254:16")
EVERYTHING = {
    "reads": 8, "submit": 2, "advise": 1, "write": 2, "faults": 6, "remove": 0.5, "drop": 0.3,
    "truncate": 0.5, "direct": 1, "evict": 1.5, "mark": 1,
}  # fmt: skip


class Programs(Kernel):
    """Cases one after the other: each has its own processes and files."""

    def __init__(self, numbers: random.Random, options: Row) -> None:
        super().__init__(numbers, options)
        self.weights = EVERYTHING | options.get("weights", {})
        self.made: list[File] = []
        self.mapper: dict[File, Thread] = {}
        self.begun: dict[Process, int] = {}
        self.of_case: dict[int, list[File]] = {}
        kswapd = {"pid": 50, "tid": 50, "comm": "kswapd0", "role": "other", "ppid": 2}
        self.tables["processes"].append(kswapd)
        # An event of read-ahead tells that the kernel logs them.
        other = File("254:0", 1, 1, None)
        self.event(Thread(Process(62, None), 62, recorded=False), other, "sync_read_ahead", 0, 1)
        marking = [Process(pid, "a") for pid in (60, 61)[: 1 if options.get("sole") else 2]]
        for one in marking:
            row = {"pid": one.pid, "tid": one.pid, "comm": "train", "role": "target", "ppid": 1}
            self.tables["processes"].append(row | {"target": one.target})
            self.begin(one, 0)
            self.end(one)
        self.account.sole = marking[0] if len(marking) == 1 else None

    def case(self, number: int) -> None:
        """Plays a case: its programs run until each has done its operations."""
        numbers = self.numbers
        self.number = number
        self.processes, self.threads = [], []
        base = 1000 + 100 * number
        for at, target in enumerate(["a", "a", "b", None, None][: numbers.choice([1, 3, 5])]):
            self.make_process(base + 10 * at, target)
        self.files = [self.make_file(number) for _ in range(numbers.choice([1, 2, 3]))]
        self.of_case[number] = self.files
        running: dict[Thread, Steps] = {}
        left = self.options.get("operations", numbers.choice([1, 3, 12, 30]))
        while left or running:
            thread = numbers.choice(self.threads)
            if thread not in running:
                if left:
                    left -= 1
                    thread.cpu = numbers.choice([0, 1])
                    thread.process.busy += 1
                    running[thread] = self.operation(thread)
                continue
            if next(running[thread], running) is running:
                del running[thread]
                thread.process.busy -= 1
        for process in [self.account.sole, *self.processes]:
            if process:
                self.end(process)
        self.now += 100

    def make_process(self, pid: int, target: str | None) -> None:
        process = Process(pid, target)
        self.processes.append(process)
        for at in range(self.numbers.choice([1, 2])):
            thread = Thread(process, pid + at, target is not None or self.chance(0.5))
            self.threads.append(thread)
            role = "other" if target is None else "target"
            row = {"pid": pid, "tid": thread.tid, "comm": f"c{pid}", "role": role, "ppid": 1}
            self.tables["processes"].append(row | {"target": target})

    def make_file(self, number: int) -> File:
        numbers = self.numbers
        dev, ino = numbers.choice(DEVICES), 100 + 10 * number + numbers.randrange(2)
        while any((file.dev, file.ino) == (dev, ino) for file in self.made):
            dev, ino = numbers.choice(DEVICES), ino + 1
        size = numbers.choice([1, 2, 7, 20, 40, 130, 300])
        named = self.options.get("named", 0.8)
        path = f"/f/{dev}/{ino}" if self.chance(named) else None
        file = File(dev, ino, size, path, tail=numbers.choice([1, 100, PAGE, PAGE]))
        file.beyond = path is not None
        self.made.append(file)
        if path:
            self.tables["files"].append({"dev": dev, "ino": ino, "path": path, "size": file.bytes})
        if self.chance(0.5):
            # No event tells which pages around a fault were there before the recording.
            whole = self.weights["faults"] and not self.options.get("parts")
            share = 1 if whole else numbers.choice([0.2, 0.9, 1])
            file.folios = {page: (page, 1) for page in range(size) if self.chance(share)}
        if self.chance(0.2):
            first = numbers.randrange(size)
            file.holes = set(range(first, numbers.randrange(first, size) + 1))
        return file

    def operation(self, thread: Thread) -> Steps:
        name = self.numbers.choices([*self.weights], [*self.weights.values()])[0]
        yield from getattr(self, name)(thread, self.numbers.choice(self.files))

    # Operations

    def draw(self, thread: Thread, file: File) -> tuple[int, int] | None:
        """First page and number of pages of a read that no event confuses with the one before."""
        numbers = self.numbers
        first = numbers.randrange(file.size)
        pages = numbers.choice([1, 2, 5, 20, 70, file.size])
        if not file.beyond:
            pages = min(pages, file.size - first)
        if thread.asked == (file, first + pages - 1):
            return None
        thread.asked = file, first + pages - 1
        return first, pages

    def reads(self, thread: Thread, file: File) -> Steps:
        """A few reads, each in a call; a part of the pages of one is read perhaps."""
        for _ in range(self.numbers.choice([1, 1, 3])):
            drawn = self.draw(thread, file)
            if not drawn:
                continue
            first, pages = drawn
            call = self.call(thread, self.numbers.choice(READS))
            begin, length = first * PAGE, pages * PAGE
            whole = self.chance(0.5)
            if not whole:
                begin += self.numbers.randrange(1, PAGE)
                begin = begin if begin < file.bytes else first * PAGE
                length -= begin % PAGE + (self.numbers.randrange(PAGE) if pages > 1 else 0)
                length = max(length, 1)
            pages = (begin + length - 1) // PAGE - first + 1
            yield from self.alone(thread, self.pread(thread, file, first, pages, whole))
            self.done(thread, call, min(length, file.bytes - begin))

    def alone(self, thread: Thread, steps: Steps) -> Steps:
        """Lets nobody interrupt a thread without recorded calls.

        No event tells that its call goes on if others have brought in the page that it lacked.
        """
        if thread.recorded and thread.begun:
            yield from steps
        else:
            yield from list(steps)[:1]

    def submit(self, thread: Thread, _: File) -> Steps:
        """Several reads in one call, of several files."""
        call = self.call(thread, self.numbers.choice(["io_submit", "io_uring_enter"]))
        submitted = self.numbers.choice([1, 2, 3])
        for _ in range(submitted):
            file = self.numbers.choice(self.files)
            drawn = self.draw(thread, file)
            if drawn:
                yield from self.alone(thread, self.pread(thread, file, *drawn, whole=False))
        self.done(thread, call, submitted)

    def advise(self, thread: Thread, file: File) -> Steps:
        """Pages are read that nobody has asked for yet."""
        call = self.call(thread, self.numbers.choice(["fadvise64", "readahead", "madvise"]))
        access, thread.advised = Access(thread, file), True
        first = self.numbers.randrange(file.size)
        yield from self.ahead(access, first, min(file.size - first, 32))
        file.busy.subtract(dict.fromkeys(access.own, 1))
        self.done(thread, call, 0)

    def write(self, thread: Thread, file: File) -> Steps:
        if thread.advised:
            return  # no event tells that it reads ahead no longer
        call = self.call(thread, "pwrite64")
        first = self.numbers.randrange(file.size)
        last = min(first + self.numbers.choice([1, 4, 40]), file.size)
        for page in range(first, last):
            if page not in file.folios:
                self.event(thread, file, "add", page, 1)
                self.account.come(file, page, 1, thread, None)
                if self.chance(0.1):
                    yield
        self.done(thread, call, (last - first) * PAGE)

    def faults(self, thread: Thread, file: File) -> Steps:
        """Touches pages of the mapped file; the kernel maps pages around, or does not."""
        around = file.ino % 4 > 0
        # The view does not follow the page tables of several threads: it may count pages twice.
        if self.mapper.setdefault(file, thread) is not thread:
            return
        pages = [self.numbers.randrange(file.size) for _ in range(self.numbers.choice([1, 3, 9]))]
        for page in sorted(pages) if self.chance(0.5) else pages:
            yield from self.touch(thread, file, page, around)

    def remove(self, thread: Thread, file: File) -> Steps:
        """The file is removed, and another gets its number."""
        call = self.call(thread, "unlink")
        yield from self.delete_all(thread, file, 0)
        self.done(thread, call, 0)

    def truncate(self, thread: Thread, file: File) -> Steps:
        """The file is made shorter, and long again."""
        call = self.call(thread, "ftruncate")
        first = self.numbers.randrange(file.size)
        yield from self.delete_all(thread, file, first)
        file.holes |= set(range(first, file.size))
        self.done(thread, call, 0)

    def drop(self, thread: Thread, _: File) -> Steps:
        """Somebody asks for the pages of all files."""
        call = self.call(thread, "write")
        for file in self.files:
            yield from self.delete_all(thread, file, 0)
        self.done(thread, call, 2)

    def delete_all(self, thread: Thread, file: File, first: int) -> Steps:
        for page in sorted(file.folios):
            begin = file.folios.get(page, (-1,))[0]
            if begin >= first and self.free(file, page):
                self.delete(thread, file, page, evicted=False)
        yield

    def direct(self, thread: Thread, _: File) -> Steps:
        """A read of the device past the cache."""
        if thread.advised:
            return
        call = self.call(thread, "pread64")
        self.bio(thread, 8, "R")
        self.wait_past_the_cache(thread)
        self.done(thread, call, 8 * PAGE)
        yield

    def evict(self, _: Thread, __: File) -> Steps:
        self.kswapd.cpu = self.numbers.choice([0, 1])
        yield from self.take(self.kswapd, self.numbers.choice([0.05, 0.3, 1]))

    def mark(self, thread: Thread, _: File) -> Steps:
        """The main thread begins an epoch or ends it, if its process does nothing else.

        With the option `amid`, it does so at any time after the first call of each thread.
        """
        process = self.account.sole or thread.process
        others = self.processes if self.account.sole else [process]
        idle = sum(one.busy for one in others) == 1
        amid = self.options.get("amid") and all(one.returned for one in self.threads)
        if process.target and (idle or amid):
            epoch = process.epoch
            self.end(process)
            if epoch is None or self.chance(0.7):
                self.begin(process, self.numbers.randrange(9))
        yield

    def begin(self, process: Process, epoch: int) -> None:
        self.begun[process], process.epoch = self.tick(), epoch
        process.passes[epoch] += 1

    def end(self, process: Process) -> None:
        if process.epoch is not None:
            mark = {"pid": process.pid, "tid": process.pid, "source": "script", "step": None}
            mark |= {"name": "epoch", "epoch": process.epoch, "start": self.begun[process]}
            self.tables["phases"].append(mark | {"end": self.tick()})
        process.epoch = None

    def tick(self) -> int:
        self.now, self.last = self.now + 2, (-1, "")
        return self.now - 1

    def counts(self) -> dict[Key, Row]:
        """The rows of `reads` by their key, those without any count left out."""
        found = {}
        for key, count in self.account.counts.items():
            row = {name: count[name] for name in count}
            if any(row.values()):
                found[key] = row
        return found
