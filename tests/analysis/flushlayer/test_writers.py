"""The pages that the flush layer takes: by default the targets', with the share left out."""

import pytest

from tests.conftest import ROOT
from tests.support.traces import make_trace
from tracer.analysis.findings.writeback import waited_for
from tracer.analysis.flushlayer.trace.accesses import Identity, page_writebacks
from tracer.analysis.report.writeback import flushed_pages
from tracer.analysis.views.writing.flushes import flushes

pytestmark = pytest.mark.slow

DEV = "254:0"
JOB, CHILD, OTHER, FLUSHER, JOURNAL = 7, 8, 9, 50, 60
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job"},
    {"pid": CHILD, "tid": CHILD, "role": "child", "target": "job"},
    {"pid": OTHER, "tid": OTHER, "role": "other"},
    {"pid": FLUSHER, "tid": FLUSHER, "role": "flusher"},
    {"pid": JOURNAL, "tid": JOURNAL, "role": "journal"},
]
TARGET = {"kind": "pid", "name": "job", "role": "target", "pid": JOB}


def bio(ts, tid, page, pages=1, rwbs="W"):
    return {"ts": ts, "tid": tid, "pid": tid, "event": "bio_queue", "dev": DEV,
            "sector": 8 * page, "nr_sector": 8 * pages, "rwbs": rwbs}  # fmt: skip


def dirty(ts, tid, ino):
    return {"ts": ts, "tid": tid, "pid": tid, "event": "dirty_folio", "dev": DEV, "ino": ino}


def written(ts, ino):
    """The flusher's brackets around what it writes of an inode at ts + 1."""
    return [
        {"ts": ts, "tid": FLUSHER, "event": "start", "dev": DEV, "ino": ino},
        {"ts": ts + 2, "tid": FLUSHER, "event": "end", "dev": DEV, "ino": ino},
    ]


TABLES = {
    "processes": PROCESSES,
    "dirty": [
        dirty(1, JOB, 11), dirty(2, OTHER, 12), dirty(3, CHILD, 13), dirty(4, OTHER, 13),
        dirty(5, JOB, 15), dirty(6, CHILD, 15),
    ],
    "writeback": [{"ts": 90, "tid": FLUSHER, "event": "start", "reason": "periodic"}],
    "inode_writeback": [
        *written(100, 11), *written(110, 12), *written(120, 13), *written(130, 14),
        *written(140, 15),
    ],
    "syscalls": [{"ts": 200, "dur_ns": 20, "pid": JOB, "tid": JOB, "name": "fsync"}],
    "block": [
        bio(101, FLUSHER, 0, 2),  # the job's
        bio(111, FLUSHER, 10, 100),  # another's
        bio(121, FLUSHER, 200, 4),  # the job's child's and another's
        bio(131, FLUSHER, 300, 8),  # nobody was seen to dirty it
        bio(141, FLUSHER, 400, 16),  # the job's and its child's
        bio(210, JOURNAL, 500, 32, "WSM"),  # while the job syncs
        bio(230, JOURNAL, 600, 64, "WSM"),  # while nobody that is seen does
    ],
}  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    with make_trace(tmp_path / "t", TABLES, targets=[TARGET]) as opened:
        yield opened


def test_the_column_whose_says_who_dirtied_each_page(trace):
    rows = trace.sql(f"SELECT ts, whose FROM {flushes(trace)} ORDER BY ts")
    assert [None if w != w else w for w in rows["whose"]] == [
        "target", "other", "shared", None, "target", "target", None,
    ]  # fmt: skip


def test_the_targets_pages_are_taken_and_the_rest_is_counted(trace):
    found = page_writebacks(trace)
    assert len(found) == found.unique == 2 + 4 + 16 + 32
    assert found.writers.facts() == {
        "taken": "targets", "why": None, "pages": 226, "left_out": 172,
        "left_out_share": 172 / 226,
        "data": {"target": 18, "shared": 4, "other": 100, "unknown": 8},
        "journal_and_metadata": {"target": 32, "shared": 0, "other": 0, "unknown": 64},
    }  # fmt: skip
    assert found.writers.said() == [
        "only the targets' pages count: 54 of 226 pages (23.9%) written, including 32 of journal"
        " and metadata (inferred from who wrote or synced) and 4 of files that others also dirtied",
        "left out: 172 of 226 pages (76.1%): 100 of other processes' files, 8 of files whose writer"
        " is not known, 64 of journal and metadata whose writer is not known (--all-writers"
        " includes them)",
    ]


@pytest.mark.parametrize(("identity", "each"), [("block", 3), ("file", 2)])
def test_pages_of_small_blocks_count_alike_where_they_are_taken_and_left_out(
    tmp_path, identity, each
):
    # Blocks of 1 KiB: two pages of each file lie on three pages of the device, for they begin in
    # the middle of one.
    tables = {
        "processes": PROCESSES,
        "dirty": [],
        "file_writes": [
            {"ts": 1, "tid": tid, "pid": tid, "event": "direct_start", "dev": DEV, "ino": ino}
            for tid, ino in ((JOB, 11), (OTHER, 12))
        ],
        "extents": [
            {"ts": 2, "tid": JOB, "event": "known", "dev": DEV, "ino": ino, "file_block": 0,
             "disk_block": block, "blocks": 8}
            for ino, block in ((11, 2), (12, 102))
        ],
        "block": [
            bio(ts, tid, 0, 2) | {"sector": 2 * block}
            for ts, tid, block in ((10, JOB, 2), (20, OTHER, 102))
        ],
    }  # fmt: skip
    systems = [{"dev": DEV, "block_bytes": 1024}]
    with make_trace(tmp_path / "t", tables, targets=[TARGET], file_systems=systems) as trace:
        found = page_writebacks(trace, identity=Identity(identity))
    told = found.writers
    assert (len(found), told.pages, told.left_out) == (each, 2 * each, each)
    assert sum(found.by_reason.values()) == told.pages - told.left_out
    assert sum(found.by_mapping.values()) == (each if identity == "file" else 0)
    assert (told.data.target, told.data.other) == (each, each)


def test_all_writers_take_everything(trace):
    found = page_writebacks(trace, all_writers=True)
    assert (len(found), found.writers.left_out, found.writers.mine) == (226, 0, 54)
    assert found.writers.said() == [
        "the pages of all writers count (as asked for); 54 of 226 pages (23.9%) are known to be"
        " the targets'"
    ]


@pytest.mark.parametrize(
    ("targets", "without", "why"),
    [
        ([], (), "the trace names no target"),
        ([{**TARGET, "kind": "machine"}], (), "the whole machine was recorded"),
        (
            [TARGET],
            ("dirty",),
            "without the probe dirty, no event names the process that dirtied a page",
        ),
    ],
)
def test_everybody_counts_where_there_are_no_targets_to_tell(tmp_path, targets, without, why):
    tables = {name: rows for name, rows in TABLES.items() if name not in without}
    with make_trace(tmp_path / "t", tables, targets=targets) as trace:
        found = page_writebacks(trace)
    assert (len(found), found.writers.taken) == (226, "everybody")
    assert why in found.writers.said()[0]


def test_other_processes_reads_are_left_out_too(tmp_path):
    block = [bio(1, JOB, 0, 2, "R"), bio(2, OTHER, 8, 4, "R"), bio(3, FLUSHER, 20, 1, "R")]
    flush = {**bio(4, OTHER, 0, 0, "FF"), "nr_sector": 0}
    tables = {**TABLES, "block": [*block, flush, {**flush, "ts": 5, "tid": JOB}]}
    with make_trace(tmp_path / "t", tables, targets=[TARGET]) as trace:
        found = page_writebacks(trace, reads=True, flushes_too=True)
    assert (len(found), len(found.bios), found.writers.pages) == (2, 2, 0)


@pytest.mark.parametrize("model", ["paper", "curve", "timed"])
def test_every_model_takes_the_targets_pages_and_says_what_is_left_out(trace, tracer, model):
    options = ("--model", model, *(() if model == "curve" else ("--capacity-pages", "8")))
    facts = tracer("simulate", trace.folder, *options, "--json").json
    assert (facts["requests"], facts["unique_pages"]) == (54, 54)
    assert (facts["writers"]["left_out"], facts["writers"]["pages"]) == (172, 226)
    text = tracer("simulate", trace.folder, *options).out
    assert "172 of 226 (76.1%)" in text
    assert "-0.000" not in text
    page = tracer("simulate", trace.folder, *options, "--html", "-").out
    assert "76.1%" in page
    everybody = tracer("simulate", trace.folder, *options, "--all-writers", "--json").json
    assert (everybody["requests"], everybody["writers"]["left_out"]) == (226, 0)


def test_a_slightly_worse_result_is_not_printed_as_minus_zero(trace, tracer):
    # 54 pages, none of them twice: I = 1 - 350 ns / 8 ms - 54 / 54 = -0.00004375.
    facts = tracer("simulate", trace.folder, "--capacity-pages", "8", "--json").json
    assert facts["improvement_with_drain"] == pytest.approx(-350 / 8e6)
    text = tracer("simulate", trace.folder, "--capacity-pages", "8").out
    assert "> -0.001" in text
    assert "-0.000" not in text


def test_a_trace_in_which_only_others_wrote_says_so(tmp_path, tracer):
    tables = {**TABLES, "block": [TABLES["block"][1]]}
    make_trace(tmp_path / "t", tables, targets=[TARGET]).close()
    text = tracer("simulate", tmp_path / "t").out
    assert "no page write-backs of the targets" in text
    assert "of others, left out         all 100\n" in text
    assert "- left out: all 100 pages: 100 of other processes' files" in text
    assert "100.0%" not in text


def test_shares_of_nearly_all_and_nearly_nothing_are_not_rounded_to_them(tmp_path, tracer):
    many = bio(2, OTHER, 400, 120_000)
    tables = {**TABLES, "block": [*TABLES["block"], many]}
    make_trace(tmp_path / "t", tables, targets=[TARGET]).close()
    text = tracer("simulate", tmp_path / "t", "--capacity-pages", "8").out
    assert "120,172 of 120,226 (more than 99.9%)" in text
    assert "54 of 120,226 pages (less than 0.1%)" in " ".join(text.split())


def test_a_device_to_which_nobody_wrote_is_named(trace, tracer):
    text = tracer("simulate", trace.folder, "--dev", "259:7").out
    assert "no page write-backs of the targets to 259:7" in text


def test_the_name_of_a_disk_in_place_of_its_number_is_refused(tracer):
    ran = tracer("simulate", ROOT / "fixtures/lenet.trace", "--dev", "vda", status=2)
    assert ran.err == (
        "tracer: --dev needs the number of a device, and 'vda' is none; give 254:0 (vda)\n"
    )


def test_sweeps_of_several_traces_take_the_targets_pages(trace, tmp_path, tracer, workers):
    (tmp_path / "sweep.toml").write_text('capacity = ["4K", "1M"]\n')
    asked = ("simulate", trace.folder, trace.folder, "--config", tmp_path / "sweep.toml")
    for options, requests in (
        ((), 54),
        (("--scheduler", workers), 54),
        (("--all-writers",), 226),
    ):
        rows = tracer(*asked, *options, "--json").json["rows"]
        assert {row["requests"] for row in rows} == {requests}
        share = 0 if requests == 226 else 172 / 226
        assert {row["left_out_share"] for row in rows} == {share}
    assert "Share of all written pages that is left out: 76.1%" in tracer(*asked).out


def test_report_has_the_targets_pages_beside_the_machines(trace):
    rows = flushed_pages(trace).groupby("reason")[["pages", "target_pages"]].sum()
    assert rows.loc["periodic"].tolist() == [130, 22]
    assert rows.loc["journal"].tolist() == [96, 32]
    found = waited_for(trace)[0].sentence
    assert "42 % of the 904.0 KiB" in found  # the journal's 96 of 226 pages
    assert "of the targets' 216.0 KiB, up to 59 % was waited for" in found  # 32 of 54
