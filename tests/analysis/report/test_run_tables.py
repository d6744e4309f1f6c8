"""Tables of one run that studies are made of: boxes of pages, epochs, use of the machine."""

import pytest

from tests.support.traces import make_trace
from tracer.analysis.report.epochs import epochs
from tracer.analysis.report.page_heat import PAGES, TIMES, page_heat
from tracer.analysis.report.tables import writeback_interval_quantiles
from tracer.analysis.report.usage import usage

S = 1_000_000_000
DEV = "7:0"
AT = {"pid": 7, "tid": 7}


@pytest.fixture
def trace(tmp_path):
    """A trace of these tables."""
    made = []

    def make(tables, **manifest):
        made.append(make_trace(tmp_path / f"{len(made)}.trace", tables, **manifest))
        return made[-1]

    yield make
    for one in made:
        one.close()


def bio(ts, page, pages=1, dev=DEV, rwbs="W"):
    return {
        "ts": ts, "tid": 50, "event": "bio_queue", "dev": dev, "sector": page * 8,
        "nr_sector": pages * 8, "rwbs": rwbs,
    }  # fmt: skip


def clock(end_s):
    return {"clock": {"name": "mono", "start_ns": 0, "end_ns": end_s * S}}


def test_pages_are_ranked_by_where_they_lie_and_counted_once_a_write_back(trace):
    found = page_heat(
        trace(
            {"block": [bio(0, 1000, 3), bio(59 * S, 1001), bio(59 * S, 1001), bio(59 * S, 5)]},
            **clock(60),
        )
    )
    assert found[["first_page", "last_page", "writebacks"]].to_numpy().tolist() == [
        [1, 1, 1], [2, 2, 1], [3, 3, 1],  # 1000 to 1002, behind page 5
        [0, 0, 1], [2, 2, 2],
    ]  # fmt: skip
    assert found["from_s"].tolist()[0] == 0
    assert found["from_s"].iloc[-1] <= 59 < found["to_s"].iloc[-1]


def test_a_long_trace_has_no_more_boxes_than_a_short_one(trace):
    found = page_heat(trace({"block": [bio(n * S, n * 7, 5) for n in range(500)]}, **clock(500)))
    assert found["writebacks"].sum() == 2500
    assert len(found) <= TIMES * PAGES
    assert found["last_page"].max() == 500 * 5 - 1
    assert found["first_page"].nunique() <= PAGES


def test_boxes_are_of_the_device_that_was_asked_for(trace):
    made = trace({"block": [bio(1, 3), bio(2, 3, dev="254:0")]})
    assert page_heat(made, DEV)["writebacks"].sum() == 1
    assert page_heat(made)["last_page"].max() == 1  # one page of each
    assert not len(page_heat(trace({"block": []}), DEV))


def phase(name, start, end, **more):
    return {**AT, "name": name, "start": int(start * S), "end": int(end * S), **more}


EPOCHS = [
    phase("train", 0, 10),
    phase("epoch", 0, 6, epoch=0),
    phase("epoch", 6, 10, epoch=1),
    phase("step", 0, 6, epoch=0, step=0),
    phase("fetch", 0, 2, epoch=0, step=0),
    phase("forward", 2, 5, epoch=0, step=0),
    phase("step", 6, 10, epoch=1, step=1),
    phase("fetch", 6, 6.5, epoch=1, step=1),
]


def test_an_epoch_is_what_it_waited_for_and_what_it_read(trace):
    block = [
        bio(1 * S, 1, 2, rwbs="RA"),
        bio(7 * S, 1, rwbs="W"),
        bio(7 * S, 9, dev="254:0", rwbs="R"),
    ]
    found = epochs(trace({"phases": EPOCHS, "block": block}, **clock(60)), DEV)
    assert found["epoch"].tolist() == [0, 1]
    assert found["epoch_s"].tolist() == [6, 4]
    assert found["stall_s"].tolist() == [2, 0.5]
    assert found["compute_s"].tolist() == [3, 0]
    assert found["overhead_s"].tolist() == [1, 3.5]
    assert found["read_bytes"].tolist() == [8192, 0]
    assert found["residency_percent"].isna().all()


def test_an_epoch_is_known_only_if_the_recording_has_all_of_it(trace):
    """The recording lasts from 4 s to 14 s: it begins within epoch 0, and ends within epoch 2."""
    last = [phase("epoch", 10, 15, epoch=2), phase("step", 10, 12, epoch=2, step=2)]
    samples = [{"ts": s * S, "name": "page_cache", "value": 1.0 * s} for s in (5, 7, 11)]
    tables = {
        "phases": [*EPOCHS, *last],
        "block": [bio(s * S, 1, 2, rwbs="R") for s in (5, 8, 12)],
        "samples": samples,
    }
    found = epochs(trace(tables, clock={"name": "mono", "start_ns": 4 * S, "end_ns": 14 * S}), DEV)
    assert found["epoch"].tolist() == [0, 1, 2]
    for name in ("epoch_s", "stall_s", "steps", "read_bytes", "page_cache_bytes"):
        assert found[name].isna().tolist() == [True, False, True], name
    whole = found.loc[1]
    assert (whole["epoch_s"], whole["stall_s"], whole["read_bytes"]) == (4, 0.5, 8192)


def test_an_epoch_reads_once_what_a_mapped_device_reads_from_its_disk(trace):
    mapped = {"dev": "253:0", "bytes": 1 << 30, "on": ["8:0"]}
    disks = [{"dev": "8:0", "bytes": 1 << 40}, {"dev": "8:16", "bytes": 1 << 40}, mapped]
    places = (("253:0", 1), ("8:0", 257), ("8:16", 9))
    block = [bio(1 * S, page, 2, dev, "R") for dev, page in places]
    made = trace({"phases": EPOCHS, "block": block}, disks=disks, **clock(60))
    assert epochs(made)["read_bytes"].tolist() == [2 * 8192, 0]
    assert epochs(made, "8:0")["read_bytes"].tolist() == [8192, 0]


def test_epochs_that_begin_at_0_again_are_not_one_long_epoch(trace):
    again = [row | {"start": row["start"] + 100 * S, "end": row["end"] + 100 * S} for row in EPOCHS]
    rank = [phase("epoch", 1, 7, epoch=0, tid=8)]
    block = [bio(50 * S, 1, 3, rwbs="R"), bio(101 * S, 1, 2, rwbs="R")]
    found = epochs(trace({"phases": [*EPOCHS, *again, *rank], "block": block}, **clock(200)), DEV)
    assert found["jobs"].tolist() == [1, 1]
    assert found["epoch_s"].tolist() == [6.5, 4]
    assert found["steps"].tolist() == [1, 1]
    assert found["stall_s"].tolist() == [2, 0.5]
    assert found["read_bytes"].tolist() == [4096, 0]


def test_steps_of_an_epoch_without_an_end_are_not_those_of_an_earlier_fold(trace):
    """The second fold is in its epoch 0 when the recording ends."""
    again = [row | {"start": row["start"] + 100 * S, "end": row["end"] + 100 * S} for row in EPOCHS]
    cut = [
        row | {"end": None} if row["name"] in ("train", "epoch") else row
        for row in again
        if row.get("epoch") != 1
    ]
    found = epochs(trace({"phases": [*EPOCHS, *cut]}, **clock(107)))
    assert found["epoch"].tolist() == [0, 1]
    for name, values in (("steps", [1, 1]), ("stall_s", [2, 0.5]), ("epoch_s", [6, 4])):
        assert found[name].tolist() == values, name


def test_unrecorded_values_of_an_epoch_are_null(trace):
    found = epochs(trace({"phases": EPOCHS}))
    for name in ("read_bytes", "hit_percent", "again_percent"):
        assert found[name].isna().all()


def test_an_epochs_memory_is_the_mean_of_its_samples(trace):
    samples = [
        {"ts": s * S, "name": "residency", "value": value, "unit": "%", "instance": "data"}
        for s, value in ((1, 10.0), (5, 30.0), (7, 100.0), (11, 50.0))
    ]
    found = epochs(trace({"phases": EPOCHS, "samples": samples}, **clock(60)))
    assert found["residency_percent"].tolist() == [20, 100]


KSWAPD = 50


def page_event(s, event, tid=7, dev=DEV, **more):
    return {
        "ts": int(s * S), "pid": tid, "tid": tid, "event": event, "dev": dev, "ino": 12, "index": 0,
        "pages": 1, "continues": False if event == "access" else None, **more,
    }  # fmt: skip


def missed(s, **more):
    names = ("sync_read_ahead", "read_ahead", "add", "access")
    return [page_event(s + n / 1000, name, **more) for n, name in enumerate(names)]


def test_hits_of_an_epoch_are_of_the_targets_pages_on_the_device(trace):
    evicted = page_event(8, "delete", tid=KSWAPD)
    elsewhere = missed(7, dev="254:0", ino=13)
    neighbours = missed(9, tid=8, ino=14)
    own = [*missed(1), page_event(7.5, "access"), evicted, *missed(8.5)]
    processes = [
        {"pid": 7, "tid": 7, "comm": "python", "role": "target", "target": "job"},
        {"pid": 8, "tid": 8, "comm": "python", "role": "other"},
        {"pid": KSWAPD, "tid": KSWAPD, "comm": "kswapd0", "role": "other"},
    ]
    events = sorted([*own, *elsewhere, *neighbours], key=lambda one: one["ts"])
    tables = {"phases": EPOCHS, "processes": processes, "page_cache": events}
    found = epochs(trace(tables, **clock(60)), DEV)
    assert found["hit_percent"].tolist() == [0, 50]
    assert found["again_percent"].tolist() == [0, 50]
    assert epochs(trace(tables, **clock(60)))["hit_percent"].tolist() == [0, pytest.approx(100 / 3)]
    assert epochs(trace(tables), "8:0")["hit_percent"].isna().all()


def test_use_is_of_the_training_and_of_all_cpus(trace):
    def sample(s, name, value, target=None):
        return {"ts": s * S, "target": target, "name": name, "value": value, "unit": "%"}

    rows = [
        *(sample(s, "cpu_use", 200.0) for s in (0, 20)),  # before and after it
        *(sample(s, "cpu_use", value) for s, value in ((5, 40.0), (6, 80.0), (7, 120.0))),
        sample(6, "cpu_use", 5.0, target="job"),
        sample(6, "page_cache", 5.0),
    ]
    phases = [phase("train", 4, 8), phase("inference", 9, 10)]
    found = usage(trace({"samples": rows, "phases": phases}))
    assert set(found["name"]) == {"cpu_use"}
    assert found["samples"].unique().tolist() == [3]
    by_share = found.set_index("share")["value"]
    assert (by_share[0.0], by_share[0.5], by_share[1.0]) == (20, 40, 60)  # of two CPUs
    alone = usage(trace({"samples": rows}))
    assert alone["samples"].unique().tolist() == [5]


def test_times_between_write_backs_by_how_many_are_shorter(trace):
    starts = [0, 1, 3, 6, 10]
    rows = [
        {"ts": s * S, "tid": 50, "event": "start", "dev": "0:0", "bdi": DEV, "reason": "periodic"}
        for s in starts
    ]
    ends = [{"ts": s * S, "tid": 50, "event": "pages_written"} for s in (1, 6)]
    made = trace({"writeback": sorted(rows + ends, key=lambda row: row["ts"])})
    every = writeback_interval_quantiles(made, DEV)
    found = every[every["between"] == "passes"].set_index("share")["interval_s"]
    assert (found[0.0], found[0.5], found[1.0]) == (1, 2.5, 4)
    wakes = every[every["between"] == "wakes"].set_index("share")["interval_s"]  # at 0, 3, 10
    assert (wakes[0.0], wakes[0.5], wakes[1.0]) == (3, 5, 7)
    assert not len(writeback_interval_quantiles(made, "8:0"))
