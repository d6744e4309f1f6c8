"""The answers of simulations: capacities, the paper's number, latencies, sweeps from a file."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.traces import make_trace
from tracer.analysis.flushlayer.answers import curve, paper, sweep, timed
from tracer.analysis.flushlayer.answers.question import Capacity, Question
from tracer.analysis.flushlayer.devices import find_device
from tracer.analysis.flushlayer.timed.destage import Destage, policy_called
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.probes.errors import UsageError
from tracer.store.trace import Trace, dump

pytestmark = pytest.mark.slow

MS = 10**6
PCM, HDD = find_device("pcm-paper", "nvm"), find_device("hdd-paper", "disk")
EXT4 = {"dev": "254:0", "block_bytes": 4096}
JOB = [{"tid": 7, "pid": 7, "target": "job", "role": "target", "comm": "python"}]


def written(begun, page, pages, ino=None):
    """A write of 8 ms, and where ino is given the extent that says whose it is."""
    common = {"dev": "254:0", "sector": page * 8, "nr_sector": pages * 8, "rwbs": "WS", "tid": 7}
    block = [
        {"ts": begun, "event": "bio_queue", "pid": 7, **common},
        {"ts": begun, "event": "issue", "pid": 7, **common},
        {"ts": begun + 8 * MS, "event": "complete", "pid": 0, **common},
    ]
    extent = {"ts": begun - 1, "tid": 7, "event": "known", "dev": "254:0", "ino": ino}
    where = {"file_block": 0, "disk_block": page, "blocks": pages}
    return block, [] if ino is None else [extent | where]


@pytest.fixture
def rewritten(tmp_path):
    """A file of four pages, written, then truncated and rewritten elsewhere; each fsynced."""
    first, second = written(10 * MS, 100, 4, 11), written(30 * MS, 200, 4, 11)
    call = {"dur_ns": 9 * MS, "tid": 7, "pid": 7, "name": "fsync", "nr": 74, "ret": 0}
    tables = {
        "block": first[0] + second[0],
        "extents": first[1] + second[1],
        "processes": JOB,
        "syscalls": [{"ts": 10 * MS - 10, **call}, {"ts": 30 * MS - 10, **call}],
    }
    with make_trace(tmp_path / "t", tables, file_systems=[EXT4]) as trace:
        yield trace


@pytest.fixture
def lenet(tmp_path):
    """The recording of a training that the project has."""
    shutil.copytree(ROOT / "fixtures" / "lenet.trace", tmp_path / "lenet.trace")
    with Trace(tmp_path / "lenet.trace") as trace:
        yield trace


def both(trace):
    return {identity: page_writebacks(trace, None, identity) for identity in Identity}


class TestCapacity:
    @pytest.mark.parametrize(
        ("given", "pages", "said"),
        [
            (Capacity(bytes=8192), 2, "8192 bytes, as given"),
            (Capacity(pages=3), 3, "3 pages, as given"),
            (Capacity(share=0.5), 5, "0.5 of the 10 distinct pages, as given"),
            (Capacity(), 3, "0.25 of the 10 distinct pages, the default"),
        ],
    )
    def test_pages_of_ten_distinct_ones(self, given, pages, said):
        assert given.of(10) == pages
        assert said in given.said(10)

    @pytest.mark.parametrize(
        ("share", "unique", "pages"),
        [(0.07, 100, 7), (0.05, 140, 7), (0.29, 100, 29), (0.071, 100, 8), (1 / 3, 3, 1),
         (0.0, 9, 0), (5e-324, 1, 1), (1e6, 1 << 31, 10**6 << 31), (np.float64(0.07), 100, 7)],
    )  # fmt: skip
    def test_a_share_is_the_decimal_number_that_was_written(self, share, unique, pages):
        assert Capacity(share=share).of(unique) == pages

    @pytest.mark.parametrize(
        "wrong",
        [{"pages": -1}, {"share": math.nan}, {"share": -0.1}, {"bytes": 1 << 60},
         {"bytes": 64}, {"bytes": 4095}, {"pages": 1, "share": 0.1}],
    )  # fmt: skip
    def test_impossible_capacities_are_refused(self, wrong):
        with pytest.raises(UsageError):
            Capacity(**wrong)


class TestPaper:
    def test_a_rewritten_checkpoint_is_new_by_block_and_hot_by_file(self, rewritten):
        facts = paper.answer(Question(PCM, HDD, Capacity(pages=4)), both(rewritten))
        assert (facts["requests"], facts["unique_pages"], facts["disk_writes"]) == (8, 8, 4)
        block, file = facts["identities"]["block"], facts["identities"]["file"]
        media = 350 / 8_000_000
        assert block["improvement_with_drain"] == pytest.approx(-media)
        assert file["improvement_with_drain"] == pytest.approx(0.5 - media)
        assert file["mapping"] == {"file": 8, "no file": 0, "not mapped": 0}

    def test_it_says_what_the_papers_number_needs(self, rewritten):
        facts = paper.answer(Question(PCM, HDD), both(rewritten))
        said = facts["papers_number"]
        assert said.startswith(
            "Layer size that reaches the paper's mean of 82%, with pages identified"
        )
        assert "by block: 0.0273 MiB without the final drain" in said  # seven of eight pages
        assert "by file: 0.0156 MiB without the final drain" in said
        assert "not reached with the final drain (at most 50%)" in said

    def test_pages_of_an_unknown_path_are_counted(self, rewritten):
        accesses = both(rewritten)
        facts = paper.answer(Question(PCM, HDD, identity=Identity.PATH), accesses)
        assert facts["identities"]["path"]["mapping"]["path not known"] == 8
        assert facts["unique_pages"] == accesses[Identity.FILE].unique == 4
        said = [text for text in facts["assumptions"] if "not known" in text]
        assert len(said) == 1 and said[0].startswith("the path of 8 of 8 pages is not known")
        assert set(facts["identities"]) == {*Identity}

    def test_without_write_backs_nothing_is_claimed(self, tmp_path):
        with make_trace(tmp_path / "t", {"block": []}) as trace:
            facts = paper.answer(Question(PCM, HDD), both(trace))
        assert (facts["requests"], facts["improvement"]) == (0, None)
        assert "nothing was written" in facts["papers_number"]
        json.loads(dump(facts))


class TestCurve:
    def test_every_capacity_and_what_an_improvement_needs(self, rewritten):
        by_file = both(rewritten)[Identity.FILE]
        question = Question(PCM, HDD, identity=Identity.FILE)
        facts = curve.answer(question, by_file, 0.5)
        assert [row["capacity_pages"] for row in facts["curve"]] == [0, 1, 2, 3, 4]
        assert facts["exact"]
        needed = {row["improvement"]: row for row in facts["needed"]}
        assert needed[0.5]["capacity_pages"] == 4
        assert needed[0.5]["capacity_pages_with_drain"] is None  # a media term short of a half
        assert set(needed) == {0.5, 0.77, 0.82, 0.9}

    def test_a_policy_without_one_pass_is_not_called_exact(self, rewritten):
        question = Question(PCM, HDD, policy="sieve")
        assert not curve.answer(question, both(rewritten)[Identity.BLOCK])["exact"]


class TestTimed:
    def facts(self, trace, **options):
        question = Question(PCM, HDD, Capacity(share=1.0))
        accesses = page_writebacks(trace, reads=True, flushes_too=True)
        return timed.answer(question, trace, accesses, Destage(), **options)

    def test_with_room_for_all_nothing_waits_for_the_disk(self, rewritten):
        facts = self.facts(rewritten)
        by = {(r["replay"], r["layer"]): r for r in facts["latency"] if r["op"] == "write"}
        assert by["closed", False]["mean_ns"] == 8 * MS
        assert by["closed", True]["max_ns"] < MS
        (everything,) = [row for row in facts["improvement"] if row["by"] == "all"]
        assert everything["mean"] == pytest.approx(1, abs=1e-3)
        assert (facts["disk_pages"], facts["disk_pages_without"]) == (0, 8)

    def test_sync_calls_are_as_recorded_without_the_layer_and_short_with_it(self, rewritten):
        calls = {row["layer"]: row for row in self.facts(rewritten)["sync_calls"]}
        assert calls["recorded"]["calls"] == 2
        assert calls["without"]["p50_ns"] == calls["recorded"]["p50_ns"] == 9 * MS
        assert calls["with"]["p99_ns"] < 2 * MS

    def test_unknown_properties_of_the_medium_are_none(self, rewritten):
        facts = self.facts(rewritten)
        assert facts["wear"]["lifetime_years"] is None
        assert facts["wear"]["cycles_per_year"] > 0
        assert facts["energy_j"] is None

    def test_the_ceiling_is_the_time_in_which_somebody_waited(self, rewritten):
        found = self.facts(rewritten)["ceiling"]
        assert found["total_s"] == pytest.approx(0.018)
        assert found["share"] == pytest.approx(0.018)

    def test_tenants_have_a_part_each_where_that_is_asked_for(self, rewritten):
        assert len(self.facts(rewritten, partitioned=True)["layers"]) == 1
        json.loads(dump(self.facts(rewritten)))


class TestSweep:
    @pytest.fixture
    def plan(self, tmp_path):
        def write(text: str) -> sweep.Plan:
            (tmp_path / "sweep.toml").write_text(text)
            return sweep.load(tmp_path / "sweep.toml")

        return write

    def test_every_combination_is_a_row(self, rewritten, plan):
        asked = plan(
            'capacity = ["16K", 0.5]\nmedium = ["pcm-paper", "optane-pmem"]\n'
            'policy = ["lru", "fifo", "min"]\nidentity = ["block", "file"]\n'
        )
        told = []
        frame = sweep.run(rewritten, asked, done=lambda n, of: told.append((n, of)))
        assert len(frame) == 2 * 2 * 3 * 2
        assert told[-1] == (6, 6)
        one = frame.query(
            "identity == 'file' and policy == 'lru' and medium == 'pcm-paper'"
        ).set_index("capacity_bytes")
        assert one.loc[16384, "improvement_with_drain"] == pytest.approx(0.5, abs=1e-3)
        assert one.loc[8192, "disk_writes"] == 6

    def test_a_plan_sweeps_the_timed_model_too(self, rewritten, plan):
        asked = plan(
            'model = "timed"\ncapacity = [1.0]\ndestage = ["lazy", "eager"]\n'
            'replay = ["open", "closed"]\npolicy = ["lru", "arc"]\n'
        )
        frame = sweep.run(rewritten, asked)
        assert len(frame) == 8
        assert set(frame["base_mean_ns"]) == {8.0 * MS}
        lazy = frame[frame["destage"] == "lazy"]
        assert (lazy["disk_pages"] == 0).all()
        assert (frame.loc[frame["destage"] == "eager", "disk_pages"] == 8).all()

    def test_a_plan_sweeps_settings_of_the_kernels_flusher(self, lenet, plan):
        asked = plan(
            'capacity = [1.0]\nidentity = ["file"]\n[knobs]\ndirty_expire_centisecs = [100, 3000]\n'
        )
        frame = sweep.run(lenet, asked)
        assert frame["dirty_expire_centisecs"].tolist() == [100, 100, 3000, 3000]
        assert frame["bound"].tolist() == ["least", "most"] * 2
        assert set(frame["writers"]) == {"everybody"}
        said = " ".join(frame.attrs["assumptions"])
        assert "never slowed down" in said and "leaves no event" in said
        as_recorded = page_writebacks(lenet, identity=Identity.FILE, all_writers=True)
        assert frame["requests"].tolist()[2] == len(as_recorded)
        with pytest.raises(UsageError, match="leave out --dev"):
            sweep.run(lenet, asked, ["254:0"])

    def test_a_knob_that_cannot_be(self, lenet, plan):
        asked = plan('capacity = [1.0]\nidentity = ["file"]\n[knobs]\ndirty_ratio = [101]\n')
        with pytest.raises(UsageError, match="dirty_ratio"):
            sweep.run(lenet, asked)

    def test_threads_change_no_row(self, rewritten, plan):
        asked = plan('capacity = [0.1, 0.5, 1.0]\npolicy = ["lru", "clock", "s3-fifo"]\n')
        one, two = (sweep.run(rewritten, asked, threads=n) for n in (1, 2))
        assert one.equals(two)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("capacity = [nan]\n", "capacity.0"),
            ("capacity = [-1.0]\n", "capacity.0"),
            ("capacity = []\n", "capacity"),
            ("policy = ['lru']\n", "capacity: Field required"),
            ("capacity = [0.1]\ncolour = 'red'\n", "colour"),
            ("capacity = [0.1]\npolicy = ['magic']\n", "no policy 'magic'"),
            ("capacity = [0.1]\nbuffer = ['all']\n", "no buffer 'all'"),
            ("capacity = [0.1]\nmedium = ['tape']\n", "no nvm 'tape'"),
            ("capacity = [0.1]\nidentity = ['name']\n", "identity.0"),
            ("capacity = ['12 apples']\n", "sweep.toml: capacity '12 apples' is not a size"),
            ("capacity = ['16M', '64']\n", "sweep.toml: capacity 64 means 64 bytes, less than one"),
            ("capacity = ['0.25']\n", "means 0.25 bytes"),
            ("capacity = [0.1\n", "is not TOML"),
            ("capacity = [0.1]\ndevices = 'none.toml'\n", "none.toml"),
            ("capacity = [0.1]\ndestage = ['idle']\n", 'no destage; give model = "timed"'),
            (
                "capacity = [0.1]\nmodel = 'curve'\nreplay = ['open']\ndestage = ['lazy']\n",
                "no destage and no replay; give model",
            ),
            ("capacity = [0.1]\n[knobs]\ndirty_ratio = [10]\n", "has no bios"),
            ("capacity = [0.1]\n[knobs]\nswappiness = [10]\n", "knobs.swappiness"),
            ("capacity = [0.1]\n[knobs]\ndirty_ratio = [-1]\n", "knobs.dirty_ratio.0"),
        ],
    )
    def test_a_plan_with_impossible_values_is_refused(self, plan, text, said):
        with pytest.raises(UsageError) as error:
            plan(text)
        assert said in str(error.value)

    def test_a_file_that_asks_for_too_much(self, plan):
        shares = ", ".join(str(n / 10_000) for n in range(1, 10_000))
        media = ", ".join(['"pcm-paper", "optane-pmem", "stt-mram"'])
        policies = '"lru", "fifo", "arc", "min", "clock", "lfu", "slru", "2q", "sieve"'
        with pytest.raises(UsageError, match="simulations"):
            plan(
                f"capacity = [{shares}]\nmedium = [{media}]\npolicy = [{policies}]\n"
                'identity = ["block", "file"]\nbuffer = ["write-only", "sync-only"]\n'
            )

    def test_no_file(self, tmp_path: Path):
        with pytest.raises(UsageError, match="cannot read"):
            sweep.load(tmp_path / "none.toml")

    def test_the_example_in_the_docs_can_be_swept(self, plan):
        text = (ROOT / "docs" / "what-if.md").read_text()
        (example,) = text.split("\n\n    model = ")[1:]
        lines = ("    model = " + example).split("\n## ")[0].splitlines()
        asked = plan("\n".join(line.removeprefix("    ") for line in lines))
        assert len(asked.settings()) == 8, "two values of two knobs, least and most"


def test_timed_tells_its_destage_policy(rewritten):
    accesses = page_writebacks(rewritten, reads=True, flushes_too=True)
    question = Question(PCM, HDD, Capacity(pages=4))
    found = {
        name: timed.answer(question, rewritten, accesses, policy_called(name))
        for name in ("watermark", "dm-writecache-pmem", "dm-writecache-ssd")
    }
    for name, facts in found.items():
        assert facts["destage"] == name
        assert sum(f"destaging, {name}: " in said for said in facts["assumptions"]) == 1
    assert len({tuple(facts["assumptions"]) for facts in found.values()}) == len(found)
    assert found["watermark"]["layers"][0]["around"] == 0
