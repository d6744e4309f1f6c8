"""Models, sweeps, texts and pages give the same answer to the same question."""

import json

import pytest

from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import paper, sweep, timed
from tracer.analysis.flushlayer.answers.question import Capacity, Question, about_gaps
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.policies import POLICIES
from tracer.analysis.flushlayer.timed.destage import Destage
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks

pytestmark = pytest.mark.slow

MS, S = 10**6, 10**9
YEAR_S = 365.25 * 86400
PCM, HDD = find_device("pcm-paper", "nvm"), find_device("hdd-paper", "disk")
DEV = "254:0"
JOB = [{"tid": 7, "pid": 7, "target": "job", "role": "target", "comm": "python"}]
READ_WRITE = ("--buffer", "read-write")


def served(ts, page, rwbs="WS"):
    """Returns a page's bio, and its request of 8 ms."""
    bio = {"pid": 7, "tid": 7, "dev": DEV, "sector": 8 * page, "nr_sector": 8, "rwbs": rwbs}
    at = {"bio_queue": ts, "issue": ts, "complete": ts + 8 * MS}
    return [{**bio, "event": event, "ts": moment} for event, moment in at.items()]


def rewritten(reads):
    """Returns 6 passes over 8 pages; after each write, so many pages are read that nobody wrote."""
    pages = []
    for turn in range(6):
        for page in range(8):
            pages.append((page, "WS"))
            pages += [(1000 + 100 * turn + 10 * page + n, "R") for n in range(reads)]
    return [row for n, (page, rwbs) in enumerate(pages) for row in served(20 * MS * n, page, rwbs)]


@pytest.fixture
def trace(tmp_path):
    """Makes a trace of these block events, and of other tables."""

    def make(block, name="t", **given):
        tables = {"block": block, "processes": JOB, **given.pop("tables", {})}
        return make_trace(tmp_path / f"{name}.trace", tables, **given)

    return make


@pytest.fixture
def plan(tmp_path):
    """Writes the file of a sweep; returns its path."""

    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("policy", POLICIES)
def test_reads_beside_a_write_only_layer_change_nothing_but_the_time(trace, policy):
    question = Question(PCM, HDD, Capacity(pages=4), policy)
    found = []
    for reads in (0, 2):
        with trace(rewritten(reads), f"{reads}-reads") as of:
            accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
            run = timed.answer(question, of, accesses, Destage())
            (layer,) = run["layers"]
            by_paper = paper.answer(question, {Identity.BLOCK: page_writebacks(of)})
            assert layer["most_dirty"] <= layer["capacity"] == 4
            assert run["disk_pages"] == by_paper["disk_writes"]
            found.append(run["disk_pages"])
    assert found[0] == found[1] > 0


def test_a_sweep_over_buffers_has_the_rows_of_each_buffer_alone(trace, plan):
    one, both = ('["write-only"]', '["write-only", "read-write"]')
    with trace(rewritten(2)) as of:
        of_one, of_both = (
            sweep.run(of, sweep.load(plan(f"capacity = [0.5, 1.0]\nbuffer = {buffers}\n")))
            for buffers in (one, both)
        )
    alike = of_both[of_both["buffer"] == "write-only"].reset_index(drop=True)
    assert alike.equals(of_one)
    assert of_one["requests"].tolist() == [48, 48]


def test_all_identities_are_asked_about_one_layer(trace):
    extent = {"tid": 7, "event": "known", "dev": DEV, "ino": 11, "file_block": 0, "blocks": 4}
    block, extents = [], []
    for n in range(8):  # A file of 4 pages is written 8 times, each time in another place.
        at, place = 100 * MS * (n + 1), 100 + 10 * n
        extents.append({**extent, "ts": at - 1, "disk_block": place})
        block += [row for page in range(4) for row in served(at + page, place + page)]
    block.sort(key=lambda row: row["ts"])
    file_system = {"dev": DEV, "block_bytes": 4096}
    with trace(block, tables={"extents": extents}, file_systems=[file_system]) as of:
        accesses = {one: page_writebacks(of, None, one) for one in Identity}
        facts = paper.answer(Question(PCM, HDD), accesses)
    identities = facts["identities"]
    assert {one["capacity_pages"] for one in identities.values()} == {8}
    assert [identities[one]["disk_writes"] for one in ("block", "file")] == [24, 0]


def test_a_cell_wears_by_the_writes_of_the_whole_recording(trace, plan):
    pcm = find_device("pcm-generic", "nvm")
    block = [row for page in range(100) for row in served(1800 * S + 10 * MS * page, page)]
    hour = {"name": "mono", "start_ns": 0, "end_ns": 3600 * S}
    with trace(block, clock=hour) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        facts = timed.answer(Question(pcm, HDD, Capacity(pages=100)), of, accesses, Destage())
        text = 'model = "timed"\ncapacity = [1.0]\nmedium = ["pcm-generic"]\n'
        frame = sweep.run(of, sweep.load(plan(text)))
    assert facts["wear"]["cycles_per_year"] == pytest.approx(YEAR_S / 3600)
    assert frame["lifetime_low_years"].tolist() == [facts["wear"]["lifetime_years"][0]]


def test_a_sweep_tells_its_results_even_if_all_are_equal(trace, plan, tracer):
    of = trace([row for n in range(8) for row in served(20 * MS * n, n % 4)])
    of.close()
    path = plan('capacity = ["1M"]\npolicy = ["lru", "arc"]\n')
    said = tracer("simulate", of.folder, "--config", path).out
    rows = [line.split()[:2] for line in said.splitlines() if " 1.000 " in line]
    assert rows == [
        ["lru", "1.000"], ["arc", "1.000"],
    ]  # fmt: skip


def test_a_job_that_only_reads_has_an_answer_with_a_layer_for_reads(trace, plan, tracer, tmp_path):
    of = trace([row for n in range(30) for row in served(20 * MS * n, n % 10, "R")])
    of.close()
    asked = ("simulate", of.folder, "--model", "timed", "--capacity", "1M")
    said = tracer(*asked, *READ_WRITE).out
    (layer,) = json.loads(tracer(*asked, *READ_WRITE, "--json").out)["layers"]
    assert "nothing to do" not in said and layer["read_hits"] == 20
    assert "nothing to do" in tracer(*asked).out
    tracer(*asked, *READ_WRITE, "--html", tmp_path / "answer.html")
    assert "Response times" in (tmp_path / "answer.html").read_text()
    path = plan('model = "timed"\ncapacity = ["1M"]\nbuffer = ["write-only", "read-write"]\n')
    tracer("simulate", of.folder, "--config", path, "--html", tmp_path / "sweep.html")
    assert "Every simulation" in (tmp_path / "sweep.html").read_text()


def test_a_sweep_over_a_trace_without_writes_has_a_page(trace, plan, tracer, tmp_path):
    traces = [trace([row for n in range(8) for row in served(20 * MS * n, n % 4)]), trace([], "u")]
    for of in traces:
        of.close()
    folders = [of.folder for of in traces]
    path = plan("capacity = [0.5, 1.0]\n")
    tracer("simulate", *folders, "--config", path, "--html", tmp_path / "sweep.html")
    assert "Every simulation" in (tmp_path / "sweep.html").read_text()


def test_bios_of_one_request_go_into_the_layer_or_past_it_apart(trace):
    """The block layer merges a write that somebody waits for with three that nobody waits for."""
    bio = {"pid": 7, "tid": 7, "dev": DEV}
    block = []
    for n in range(10):
        at, place = 100 * MS * n, 8 * (100 + 10 * n)
        waited = {**bio, "ts": at, "sector": place, "nr_sector": 8, "rwbs": "WS"}
        other = {**bio, "ts": at + 10, "sector": place + 8, "nr_sector": 24, "rwbs": "W"}
        whole = {**waited, "nr_sector": 32}
        block += [
            {**waited, "event": "bio_queue"},
            {**other, "event": "bio_queue"},
            {**other, "event": "backmerge", "ts": at + 11},
            {**whole, "event": "issue", "ts": at + 20},
            {**whole, "event": "complete", "ts": at + 8 * MS},
        ]
    question = Question(PCM, HDD, Capacity(pages=100), buffer="sync-only")
    with trace(block) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        run = timed.answer(question, of, accesses, Destage())
        by_paper = paper.answer(question, {Identity.BLOCK: page_writebacks(of)})
    assert by_paper["disk_writes"] == run["disk_pages"] == 30
    assert run["layers"][0]["written"] == 10


def test_the_part_of_the_only_tenant_serves_its_reads(trace):
    pages = [
        (page, rwbs)
        for _ in range(5)
        for page, rwbs in ((900, "WS"), *((n, "R") for n in range(6)))
    ]
    block = [row for n, (page, rwbs) in enumerate(pages) for row in served(20 * MS * n, page, rwbs)]
    written = [{"ts": 0, "pid": 7, "tid": 7, "event": "direct_start", "dev": DEV, "ino": 11}]
    question = Question(PCM, HDD, Capacity(pages=50), buffer="read-write")
    with trace(block, tables={"dirty": [], "file_writes": written}) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        hits = [
            timed.answer(question, of, accesses, Destage(), partitioned)["layers"][0]["read_hits"]
            for partitioned in (False, True)
        ]
    assert hits == [24, 24]


@pytest.mark.parametrize("written", [0, 1])
def test_reads_of_a_volume_count_once_whether_or_not_it_is_written_to(trace, written):
    disks = [
        {"dev": "8:16", "name": "sdb", "bytes": 1 << 40},
        {"dev": "253:0", "name": "dm-0", "bytes": 1 << 30, "on": ["8:16"]},
    ]
    rows = [(n % 8, "R") for n in range(24)] + [(900, "WS")] * written
    bio = {"pid": 7, "tid": 7, "event": "bio_queue", "nr_sector": 8}
    block = [
        {**bio, "ts": MS * n + below, "dev": dev, "sector": 8 * (page + 256 * below), "rwbs": rwbs}
        for n, (page, rwbs) in enumerate(rows)
        for below, dev in enumerate(("253:0", "8:16"))
    ]
    question = Question(PCM, HDD, Capacity(pages=12), buffer="read-write")
    with trace(block, disks=disks) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, all_writers=True)
        facts = paper.answer(question, {Identity.BLOCK: accesses})
    assert (facts["requests"], facts["reads"], facts["read_hits"]) == (written, 24, 16)
    assert facts["below_left_out"] == {"8:16": 24 + written}


def test_a_sweep_says_what_its_numbers_assume(trace, plan, tracer, tmp_path):
    block = [row for n in range(8) for row in served(20 * MS * n, n % 4)]
    lost = {"events": 900, "windows": 3, "unknown": 0, "others": 0}
    traces = [trace(block, "lossy", loss=lost), trace(block, "whole")]
    for of in traces:
        of.close()
    path = plan('capacity = ["4K", "1M"]\n')
    one = tracer("simulate", traces[0].folder, "--config", path, "--json").json["assumptions"]
    assert "the recording has 3 gaps: write-backs may be missing" in one
    assert any(said.startswith("pages identified by block") for said in one)
    folders = [of.folder for of in traces]
    said = tracer("simulate", *folders, "--config", path).out
    assert "lossy.trace: the recording has 3 gaps" in said and "whole.trace: " not in said
    tracer("simulate", *folders, "--config", path, "--html", tmp_path / "sweep.html")
    assert "the recording has 3 gaps" in (tmp_path / "sweep.html").read_text()


def test_a_recording_with_one_gap_has_a_gap(trace):
    with trace([], loss={"events": 1, "windows": 1, "unknown": 0, "others": 0}) as of:
        assert about_gaps(of) == ["the recording has a gap: write-backs may be missing"]


def test_a_phase_in_which_the_job_waits_for_reads_destages_nothing(trace):
    """The job loads data, page by page. Meanwhile it writes some pages that nobody waits for."""
    block = []
    for n in range(100):
        block += served(25 * MS + 10 * MS * n, 5000 + n, "R")
        if n % 3 == 0:
            block += served(29 * MS + 10 * MS * n, 100 + n, "W")
    block.sort(key=lambda row: row["ts"])
    phases = [
        {"pid": 7, "tid": 7, "name": "train", "start": 0, "end": 20 * MS},
        {"pid": 7, "tid": 7, "name": "data_load", "start": 20 * MS, "end": 4 * S},
    ]
    written = [{"ts": 0, "pid": 7, "tid": 7, "event": "direct_start", "dev": DEV, "ino": 11}]
    tables = {"phases": phases, "dirty": [], "file_writes": written}
    question = Question(PCM, HDD, Capacity(pages=200))
    destaged = {}
    with trace(block, tables=tables) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        for policy in ("lazy", "phase", "eager"):
            facts = timed.answer(question, of, accesses, Destage(policy))
            destaged[policy] = facts["layers"][0]["destaged"]
            groups = {(row["by"], row["name"]): row["requests"] for row in facts["improvement"]}
            assert groups["phase", "data_load"] == groups["tenant", "job"] == 134
    assert destaged["lazy"] == destaged["phase"] == 0 < destaged["eager"]


@pytest.mark.parametrize("policy", ["lru", "fifo", "arc"])
def test_the_part_of_a_tenant_bounds_its_dirty_pages(trace, policy):
    """A tenant writes 7 pages in turn into its half of 8 pages; the other writes one."""
    block = [row for n in range(35) for row in served(20 * MS * n, n % 7)]
    block += [row | {"pid": 8, "tid": 8} for row in served(20 * MS * 35, 500)]
    neighbour = {"tid": 8, "pid": 8, "target": "other", "role": "target", "comm": "python"}
    direct = {"ts": 0, "event": "direct_start", "dev": DEV}
    written = [{**direct, "pid": pid, "tid": pid, "ino": pid} for pid in (7, 8)]
    tables = {"processes": [*JOB, neighbour], "dirty": [], "file_writes": written}
    question = Question(PCM, HDD, Capacity(pages=8), policy)
    with trace(block, tables=tables) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        facts = timed.answer(question, of, accesses, Destage(), True)
    parts = {part["tenant"]: part for part in facts["layers"]}
    assert {name: part["capacity"] for name, part in parts.items()} == {"job": 4, "other": 4}
    assert parts["job"]["most_dirty"] == 4 and parts["other"]["most_dirty"] == 1
    assert facts["disk_pages"] == parts["job"]["destaged"] >= 28
    said = [text for text in facts["assumptions"] if "least recently used page leaves" in text]
    assert len(said) == (policy != "lru")
    assert all("another tenant" in text and "the destage policy" in text for text in said)


def test_a_sync_call_waits_for_no_reads_of_other_threads_and_for_no_later_writes(trace):
    """The call waits for 8 of its 9 ms. Others of its process read, and write on after it."""
    syncs = {"ts": MS - 10, "dur_ns": 9 * MS, "tid": 7, "pid": 7, "name": "fsync", "nr": 74}
    beside = [*served(7 * MS, 4000, "R"), *served(8 * MS, 6000, "W")]
    block = [*served(MS, 5), *({**row, "tid": 17} for row in beside)]
    block.sort(key=lambda row: row["ts"])
    threads = [*JOB, {**JOB[0], "tid": 17}]
    with trace(block, tables={"processes": threads, "syscalls": [{**syncs, "ret": 0}]}) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        facts = timed.answer(Question(PCM, HDD, Capacity(pages=10)), of, accesses, Destage())
    times = {row["layer"]: row["mean_ns"] / MS for row in facts["sync_calls"]}
    assert times["recorded"] == 9
    assert times["without"] == pytest.approx(9, abs=0.01)
    assert times["with"] == pytest.approx(1, abs=0.01)


def test_a_sweep_tells_what_an_answer_tells_about_the_recording(trace, plan):
    other = [{**row, "pid": 8, "tid": 8} for row in served(40 * MS, 7)]
    block = [*served(0, 3), *other, *served(80 * MS, 5)[:1]]  # the last bio is never complete
    targets = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]
    direct = {"ts": 0, "pid": 7, "tid": 7, "event": "direct_start", "dev": DEV, "ino": 1}
    tables = {
        "dirty": [],
        "file_writes": [direct],
        "processes": [*JOB, {"tid": 8, "pid": 8, "role": "other", "comm": "cp"}],
    }
    told = {}
    with trace(block, tables=tables, targets=targets) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        question = Question(PCM, HDD, Capacity(pages=1), "arc")
        alone = timed.answer(question, of, accesses, Destage())["assumptions"]
        for replays in ('["closed"]', '["open"]'):
            text = f'model = "timed"\ncapacity = ["4K"]\npolicy = ["arc"]\nreplay = {replays}\n'
            told[replays] = sweep.run(of, sweep.load(plan(text))).attrs["assumptions"]
    about = (
        "the completion of 1 of 2 bios", "the disk serves only", "arc: chooses the pages",
        "hdd-paper: every request takes the same time", "pcm-paper: bandwidth is not known",
    )  # fmt: skip
    for begin in about:
        [sentence] = [said for said in alone if said.startswith(begin)]
        assert sentence in told['["closed"]']
    assert not any(said.startswith(about[0]) for said in told['["open"]'])


def test_answer_and_sweep_tell_what_a_layer_that_keeps_reads_writes(trace, plan):
    text = 'model = "timed"\ncapacity = ["4K"]\nbuffer = ["{}"]\n'
    with trace(served(0, 3)) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        for buffer, told in (("read-write", 1), ("write-only", 0)):
            question = Question(PCM, HDD, Capacity(pages=1), buffer=buffer)
            alone = timed.answer(question, of, accesses, Destage())["assumptions"]
            swept = sweep.run(of, sweep.load(plan(text.format(buffer)))).attrs["assumptions"]
            for said in (alone, swept):
                assert sum("the pages that reads bring in" in one for one in said) == told


@pytest.mark.parametrize(
    ("journal", "told"),
    [
        ([], "1 equal parts, for other"),
        ([80], "2 equal parts, for other, other (no tenant); other (no tenant) has the writes"),
    ],
)
def test_the_part_for_other_writes_is_told_apart_from_a_tenant_called_other(trace, journal, told):
    job = [{**JOB[0], "target": "other"}, {"tid": 60, "pid": 60, "role": "journal"}]
    direct = {"ts": 0, "pid": 7, "tid": 7, "event": "direct_start", "dev": DEV, "ino": 11}
    block = [*served(1, 3)]
    for page in journal:
        block += [{**row, "pid": 60, "tid": 60} for row in served(40 * MS, page, "WSM")]
    tables = {"processes": job, "file_writes": [direct]}
    with trace(block, tables=tables) as of:
        accesses = page_writebacks(of, None, Identity.BLOCK, True, True)
        question = Question(PCM, HDD, Capacity(pages=4))
        facts = timed.answer(question, of, accesses, Destage(), partitioned=True)
    [said] = [one for one in facts["assumptions"] if "equal parts" in one]
    assert told in said and ("without a tenant" in said) == bool(journal)
