"""`tracer predict --warm` of recordings without accesses: those inferred from calls."""

import os
from collections import Counter

import pytest

from tests.oracles.called_jobs import JobCall, removal
from tests.oracles.drawing import seeds
from tests.oracles.open_descriptors import PAGE, System, run
from tests.oracles.two_lists import READ, UPDATE_NS, WRITE
from tests.oracles.warm_answers import agree, predicted, recording
from tests.oracles.warm_caches import APART, SHARED
from tests.oracles.warm_pages import warm_pages

pytestmark = pytest.mark.slow

TARGETS = [
    {"name": name, "role": "target", "kind": "pid", "pid": pid}
    for name, pid in (("a", 100), ("b", 200))
]
SHARING = {"--shared": SHARED, "--apart": APART}
PAGES = (7, 33, 60, 100)


class CachedSystem(System):
    """Processes read through a page cache in which a share of all pages were before.

    The kernel logs the pages that come and go, and no uses of them. The processes write nothing.
    `takes`: the share of reads after which reclaim or a program takes pages. `loses`: the share of
    arrivals that no event tells.
    """

    def __init__(
        self, seed: int, takes: float = 0.15, loses: float = 0, cached: float = 0.5
    ) -> None:
        super().__init__(seed)
        self.takes, self.loses, self.share = takes, loses, cached
        self.calls, self.recorded = [], Counter()
        self.came, self.cached, self.sizes = set(), set(), {}
        self._openings = Counter()
        self.tables["page_cache"], self.tables["reclaim"] = [], []

    def file(self, dev, ino, size, path):
        file, pages = (dev, ino), -(-size // PAGE)
        self.sizes[file] = pages
        share = self.share
        self.cached |= {(file, page) for page in range(pages) if self.numbers.random() < share}
        return super().file(dev, ino, size, path)

    def write(self, process, number, length):
        pass

    def use(self, process, what, begun, offset, got):
        super().use(process, what, begun, offset, got)
        if got == 0 or what.flags & os.O_DIRECT:
            return
        file, first = (what.file.dev, what.file.ino), offset // PAGE
        pages = range(first, (offset + got - 1) // PAGE + 1)
        new = [(file, page) for page in pages if (file, page) not in self.cached]
        self.cached.update(new)
        new = [page for page in new if not self.loses or self.numbers.random() >= self.loses]
        for page in new:
            self.event(process.pid, "add", page, begun + 1)
        self.came.update(new)
        if process.target:
            key = process.pid, file
            self._openings[key] += first == 0
            reader = *key, self._openings[key]
            place = process.target, None, reader, file, first, len(pages), begun
            self.calls.append(JobCall(*place, READ))
            if not self.recorded:
                self.now += UPDATE_NS  # The clocks of shorter recordings are others.
            self.recorded[process.target, None] += len(new)
        else:
            self.calls += [JobCall(None, None, None, *page, 1, begun, WRITE) for page in new]
        if self.numbers.random() < self.takes:
            self.take(file)
        self.now += self.numbers.choice([1, 9, 150_000_000])

    def take(self, file):
        """Takes the first cached pages of a file: reclaim does, or a program."""
        most, pid = self.numbers.randrange(self.sizes[file]), self.numbers.choice([100, 400])
        taken = sorted(page for page in self.cached if page[0] == file and page[1] <= most)
        reclaims, thread = self.numbers.random() < 0.5, {"pid": pid, "tid": pid, "cpu": 0}
        self.now += 5
        if reclaims:
            begin = {"ts": self.now - 2, "event": "memcg_begin", **thread}
            end = {"ts": self.now + 2, "event": "memcg_end", "nr_reclaimed": len(taken), **thread}
            self.tables["reclaim"] += [begin, end]
        for page in taken:
            self.event(pid, "delete", page, self.now)
        self.calls += [removal(*page, self.now) for page in taken if not reclaims]
        self.cached.difference_update(taken)
        self.now += 5

    def event(self, pid, event, page, ts):
        (dev, ino), index = page
        row = {"ts": ts, "pid": pid, "tid": pid, "cpu": 0, "event": event, "dev": dev}
        self.tables["page_cache"].append(row | {"ino": ino, "index": index, "pages": 1})

    def recorded_tables(self):
        tables = super().recorded()
        for row in tables["processes"]:
            row["cgroup"] = f"/{row['target']}"
        return tables


class Played(CachedSystem):
    """Random programs, with their warm pages."""

    def __init__(self, seed, **options):
        super().__init__(seed, **options)
        run(self, 200)
        self.warm = warm_pages(self.calls, self.came)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("sharing", SHARING)
def test_programs_read_as_much_as_in_the_oracle(tmp_path, seed, sharing):
    jobs, below = Played(seed), SHARING[sharing]
    folder = recording(tmp_path / "t", jobs.recorded_tables(), TARGETS)
    answer = predicted(folder, "--warm", sharing, pages=PAGES)
    assert answer["inferred"]
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, below, jobs.warm, PAGES)
    agree(predicted(folder, sharing, pages=PAGES), jobs, below, (), PAGES)


@pytest.mark.parametrize("seed", seeds(1))
def test_a_page_whose_arrival_was_lost_stays(tmp_path, seed):
    jobs = Played(seed, loses=0.3)
    tables = jobs.recorded_tables()
    tables["loss"] = [{"stream": "ftrace", "cpu": 0, "from": 1000, "to": 2000, "count": 5}]
    lost = {"events": 5, "windows": 1, "unknown": 0, "others": 0}
    folder = recording(tmp_path / "t", tables, TARGETS, loss=lost)
    answer = predicted(folder, "--warm", "--apart", pages=PAGES)
    assert answer["lossy"]
    assert answer["staying_pages"] == len(jobs.warm)
    agree(answer, jobs, APART, jobs.warm, PAGES)


@pytest.mark.parametrize("first", ["stranger", "target"])
def test_pages_that_others_bring_in_are_in_memory_for_a_target(tmp_path, first):
    """The kernel's model has them; the other caches are the target's alone."""
    jobs = CachedSystem(0, takes=0)
    file = jobs.file("8:1", 7, 20 * PAGE, "/data/f")
    jobs.cached.clear()
    job, stranger = jobs.process(100, "a"), jobs.process(300, None)
    for process in (stranger, job) if first == "stranger" else (job, stranger):
        jobs.read(process, jobs.open(process, file), 5 * PAGE)
    folder = recording(tmp_path / "t", jobs.recorded_tables(), TARGETS[:1])
    (row,) = predicted(folder, "--warm", pages=[60])["reads"]
    read = 0 if first == "stranger" else 5
    assert row["recorded_pages"] == row["two-lists_pages"] == read
    assert row["lru_pages"] == row["min_pages"] == row["resident_pages"] == 5
