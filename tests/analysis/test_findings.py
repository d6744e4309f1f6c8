"""Findings: each over a small trace with a known answer, and all of them over a real one."""

import dataclasses
import json
from pathlib import Path

import pytest

from analysis.cli.query import query as query_verb
from analysis.findings.catalogue import ALWAYS, TOPICS, TRIVIAL, findings
from analysis.findings.finding import file_name, name, percent, seconds
from probes.catalogue import TABLES
from tests.support.traces import make_trace

S = 1_000_000_000
LENET = Path(__file__).parents[2] / "fixtures/lenet.trace"
DEV = "254:0"
JOB, WORKER, JBD2, FLUSHER = 7, 8, 30, 50
PROCESSES = [
    {"pid": JOB, "tid": JOB, "role": "target", "target": "job", "comm": "python"},
    {"pid": WORKER, "tid": WORKER, "role": "child", "target": "job", "comm": "pt_data_worker"},
    {"pid": JBD2, "tid": JBD2, "ppid": 2, "role": "journal", "comm": "jbd2/vda-8"},
    {"pid": FLUSHER, "tid": FLUSHER, "ppid": 2, "role": "flusher", "comm": "kworker/u8:1"},
]
EVIL = "<script>alert(1)</script>\x1b[2J\n\u202e\"';DROP TABLE x--"


def phase(name, start, end, pid=JOB, **more):
    end = None if end is None else int(end * S)
    return {"pid": pid, "tid": pid, "name": name, "start": int(start * S), "end": end, **more}


def call(name, ts, dur, tid=JOB):
    return {"ts": int(ts * S), "pid": tid, "tid": tid, "name": name, "dur_ns": int(dur * S)}


def pause(ts, seconds, tid=JOB):
    return {
        "ts": int(ts * S), "pid": tid, "tid": tid, "event": "balance_dirty_pages",
        "pause_ns": int(seconds * S),
    }  # fmt: skip


@pytest.fixture
def found(tmp_path):
    """The findings of a trace of these tables, by topic; each query gives its value again."""
    made = []

    def make(tables, **manifest):
        manifest.setdefault("clock", {"name": "mono", "start_ns": 0, "end_ns": 200 * S})
        folder = tmp_path / f"{len(made)}.trace"
        made.append(folder)
        with make_trace(folder, tables, **manifest) as trace:
            listed = findings(trace)
        assert [one.weight for one in listed] == sorted((o.weight for o in listed), reverse=True)
        for one in listed:
            assert one.weight >= TRIVIAL or one.topic in ALWAYS, one
            assert 0 <= one.weight <= 1 and one.sentence.isprintable(), one
        return {one.topic: one for one in listed}

    make.folders = made
    return make


def first_cell(folder, query, capsys):
    """What `tracer query` gives first."""
    capsys.readouterr()
    query_verb(folder, query, json=True, csv=False)
    return next(iter(json.loads(capsys.readouterr().out)[0].values()))


TRAIN = [phase("train", 0, 100)]


def test_write_back_stalls_are_a_share_of_training_time(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": TRAIN,
            "syscalls": [call("write", 10, 3)],
            "dirty": [
                pause(11, 0.75),  # in the write
                pause(50, 0.25, WORKER),
                pause(60, 5, FLUSHER),  # none of the job's
                pause(150, 7),  # after the training
            ],
        }
    )
    stalls = by_topic["stalls"]
    assert stalls.sentence.startswith(
        "write-back stalls account for at most 1.0 % of training time"
    )
    assert (stalls.value, stalls.unit, stalls.certainty) == (1.0, "%", "at most")
    assert stalls.weight == 0.01 and not stalls.lossy
    ceiling = by_topic["write waits"]
    assert ceiling.value == pytest.approx(3.25)  # 3 s in the call, 0.25 s outside of any
    assert "at most 3.2 % of training time" in ceiling.sentence


def test_nothing_waited_for_is_said_too(found):
    by_topic = found({"processes": PROCESSES, "phases": TRAIN, "syscalls": [], "dirty": []})
    assert by_topic.keys() == {"write waits"}
    assert "takes at most 0 % of training time" in by_topic["write waits"].sentence


def test_time_is_that_of_the_recording_where_no_training_is_marked(found):
    by_topic = found({"processes": PROCESSES, "syscalls": [], "dirty": [pause(150, 20)]})
    assert by_topic["stalls"].value == 10
    assert "of the recording" in by_topic["stalls"].sentence


def test_several_jobs_that_train_at_once_have_the_sum_of_their_times(found):
    both = [*TRAIN, phase("train", 50, 150, pid=9)]
    by_topic = found(
        {"processes": PROCESSES, "phases": both, "syscalls": [call("fsync", 120, 20)], "dirty": []}
    )
    assert by_topic["sync"].value == 10  # of 200 s


def test_fsync_and_checkpoints_have_their_share(found):
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [
                *TRAIN,
                phase("checkpoint", 10, 12),
                phase("checkpoint", 10.5, 11.5),  # within it
                phase("checkpoint", 50, 54),
            ],
            "syscalls": [call("fsync", 10, 1), call("fsync", 50, 2), call("fdatasync", 53, 1)],
        }
    )
    assert by_topic["sync"].value == 4
    assert "fsync and the like) takes at most 4.0 %" in by_topic["sync"].sentence
    assert "3 calls of 1.33 s" in by_topic["sync"].sentence
    assert by_topic["checkpoints"].value == 6
    assert "2 of 3 s on average" in by_topic["checkpoints"].sentence


STEPS = [
    *TRAIN,
    *(
        phase(part, at, at + length, step=number, epoch=number // 5)
        for number in range(10)
        for part, at, length in (
            ("step", 10 * number, 10),
            ("fetch", 10 * number, 6 if number < 5 else 2),
            ("forward", 10 * number + 6, 1),
            ("backward", 10 * number + 7, 1),
            ("optimizer", 10 * number + 8, 1),
        )
    ),
]


def test_waiting_for_data_and_who_makes_one_wait(found):
    by_topic = found({"phases": STEPS})
    loading = by_topic["data loading"]
    assert loading.value == 40 and loading.weight == 0.4
    assert "no process of its own loads data" in loading.sentence
    assert by_topic["first epoch"].value == 3
    assert "wait 3 times as long for their data as later ones (6 s, then 2 s)" in (
        by_topic["first epoch"].sentence
    )
    assert by_topic["first epoch"].weight == pytest.approx(0.3)
    assert by_topic["computing"].value == 30
    assert by_topic["overhead"].value == 30

    loads = [phase("fetch", 10 * n, 10 * n + 5, pid=WORKER, step=n) for n in range(10)]
    reads = [call("read", 10 * n, 1, WORKER) for n in range(10)]
    reads += [call("read", 10 * n + 5, 4, WORKER) for n in range(10)]  # waits for what to load
    by_topic = found({"phases": [*STEPS, *loads], "syscalls": reads})
    assert "the one process that loads data does not keep up" in by_topic["data loading"].sentence
    assert by_topic["loaders"].value == 20  # 10 s of reading in 50 s of loading
    assert (
        "20 % of loading in calls that read: the rest is decoding" in by_topic["loaders"].sentence
    )


def test_a_step_that_began_before_the_recording_does_not_count(found):
    clock = {"name": "mono", "start_ns": 50 * S, "end_ns": 200 * S}
    late = [row for row in STEPS if row["start"] >= 50 * S]
    early = phase("step", 1, 49, step=0)
    by_topic = found({"phases": [phase("train", 0, 100), early, *late]}, clock=clock)
    assert by_topic["data loading"].value == 20
    assert "slow minibatches" not in by_topic


def test_workers_are_those_of_one_time_and_not_of_all_epochs(found):
    loads = [
        phase("fetch", 10 * n, 10 * n + 5, pid=100 + 2 * (n // 5) + n % 2, step=n, epoch=n // 5)
        for n in range(10)
    ]
    sentence = found({"phases": [*STEPS, *loads]})["data loading"].sentence
    assert "the 2 processes that load data do not keep up" in sentence


def test_faults_of_which_nothing_is_known_are_no_finding(found):
    assert found({"page_faults": faults(100)}) == {}


def test_slow_minibatches_are_told_with_what_they_cost(found):
    rows = [phase("step", n, n + 1, step=n) for n in range(9)]
    by_topic = found({"phases": [*TRAIN, *rows, phase("step", 10, 21, step=9)]})
    slow = by_topic["slow minibatches"]
    assert slow.value == 50  # 10 s beyond the median of 20 s
    assert "1 of 10 minibatches take more than twice the median of 1 s" in slow.sentence


def test_the_training_thread_s_own_calls(found):
    calls = [call("futex", 1, 4), call("read", 20, 1), call("read", 30, 50, WORKER)]
    by_topic = found({"phases": TRAIN, "syscalls": calls})
    assert by_topic["calls"].value == 5
    assert "4.0 % in futex, where threads wait for each other" in by_topic["calls"].sentence


def faults(count, **more):
    row = {"ts": 5 * S, "pid": JOB, "tid": JOB, "user": True, "kind": "major", **more}
    return [row] * count


def test_major_faults_by_file_and_phase(found):
    torch = {"file": "/usr/lib/libtorch_cpu.so", "ip_file": "/lib/ld.so", "symbol": "relocate"}
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [phase("model_load", 0, 10), phase("train", 10, 100)],
            "page_faults": [
                *faults(71, **torch),
                *faults(9, **{**torch, "ts": 50 * S}),
                *faults(20, file="/data/x", ip_file="/usr/bin/python"),
                *faults(300, kind="minor", ip_file="/usr/bin/python"),
            ],
        }
    )
    major = by_topic["major faults"]
    assert major.value == 71
    assert major.sentence.startswith("71 % of major faults are libtorch_cpu.so in model_load")
    assert major.weight == pytest.approx(0.71 * 0.25)
    every = by_topic["page faults"]
    assert every.value == 80
    assert "taken in python (320 of 400)" in every.sentence


def test_a_few_faults_are_no_finding(found):
    assert found({"page_faults": faults(5, file="/x")}) == {}


def start(ts, reason):
    return {"ts": int(ts * S), "tid": FLUSHER, "event": "start", "reason": reason, "bdi": DEV}


def bio(ts, page, pages, tid=FLUSHER, rwbs="W"):
    return {
        "ts": int(ts * S), "pid": tid, "tid": tid, "event": "bio_queue", "dev": DEV,
        "sector": page * 8, "nr_sector": pages * 8, "rwbs": rwbs,
    }  # fmt: skip


def test_reasons_and_intervals_of_write_backs(found):
    rows = [start(2 * n, "periodic" if n % 4 else "background") for n in range(40)]
    by_topic = found({"writeback": rows}, vm={"dirty_writeback_centisecs": 500})
    assert by_topic["write-back reasons"].value == 75
    assert "75 % of write-backs are periodic (30 of 40)" in by_topic["write-back reasons"].sentence
    assert by_topic["write-back interval"].value == 2
    assert "more often than the timer's 5 s" in by_topic["write-back interval"].sentence


def chain(tid, dirtier, ino, at, page, pages):
    """An inode dirtied by one, and written out page by page in the context of another."""
    return {
        "dirty": [
            {"ts": int((at - 1) * S), "pid": dirtier, "tid": dirtier, "event": "dirty_folio",
             "dev": DEV, "ino": ino}
        ],
        "file_writes": [
            {"ts": int(at * S) - 10, "pid": tid, "tid": tid, "event": "writepages_start",
             "dev": DEV, "ino": ino, "sync_mode": 1}
        ],
        "block": [bio(at + n / 1e6, page + n, 1, tid) for n in range(pages)],
    }  # fmt: skip


A, B = 10, 20
CONTAINERS = [
    {"name": one, "role": "target", "kind": "container", "pid": pid, "container": one * 64}
    for one, pid in (("A", A), ("B", B))
]
OF_CONTAINERS = [
    {"pid": pid, "tid": pid, "role": "target", "target": one, "container_id": one * 64,
     "comm": "python"}
    for one, pid in (("A", A), ("B", B))
]  # fmt: skip


def merged(*parts):
    tables = {}
    for part in parts:
        for table, rows in part.items():
            tables.setdefault(table, []).extend(rows)
    return {table: sorted(rows, key=lambda row: row.get("ts", 0)) for table, rows in tables.items()}


def test_what_one_container_dirtied_of_what_another_one_s_fsync_waits_for(found):
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A)]},
        chain(A, A, 100, 12, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),  # the commit takes the other's pages along
        chain(JBD2, B, 201, 40, 2000, 500),  # nobody waits any more
    )
    by_topic = found(tables, targets=CONTAINERS)
    tenants = by_topic["tenants"]
    assert tenants.value == 63
    assert tenants.sentence.startswith(
        "container B dirtied 63 % of what was written for container A's fsync (63 of 100 pages)"
    )
    assert tenants.certainty == "inferred"
    assert by_topic["writers"].value == pytest.approx(100 * 563 / 600)
    assert "container B dirtied at least 94 %" in by_topic["writers"].sentence


def test_what_several_may_have_dirtied_makes_a_share_a_lower_bound(found):
    nobodys = {k: v for k, v in chain(JBD2, B, 202, 15, 3000, 100).items() if k != "dirty"}
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]]},
        {"syscalls": [call("fsync", 10, 10, A)]},
        chain(JBD2, B, 200, 14, 1000, 100),
        nobodys,
    )
    tenants = found(tables, targets=CONTAINERS)["tenants"]
    assert (tenants.value, tenants.certainty) == (50, "at least")
    assert "dirtied at least 50 %" in tenants.sentence


def test_one_target_has_no_tenants(found):
    tables = merged(
        {"processes": PROCESSES, "syscalls": [call("fsync", 10, 10)]},
        chain(JOB, JOB, 100, 12, 0, 30),
    )
    by_topic = found(tables, targets=[{"name": "job", "role": "target", "kind": "pid", "pid": JOB}])
    assert not {"tenants", "writers"} & by_topic.keys()
    assert by_topic["waited for"].value == 100
    assert "120.0 KiB" in by_topic["waited for"].sentence


def request(ts, queue, service, page, tid=JOB, rwbs="R"):
    common = {"pid": tid, "tid": tid, "dev": DEV, "sector": page * 8, "nr_sector": 8, "rwbs": rwbs}
    times = (("bio_queue", ts), ("issue", ts + queue), ("complete", ts + queue + service))
    return [{**common, "event": event, "ts": int(at * S)} for event, at in times]


def test_time_in_the_queue_against_time_in_the_device(found):
    rows = [row for n in range(50) for row in request(n, 0.75, 0.25, n)]
    by_topic = found(
        {"processes": PROCESSES, "phases": TRAIN, "block": rows},
        disks=[{"name": "vda", "dev": DEV}],
    )
    latency = by_topic["request latency"]
    assert latency.value == 75
    assert "a read on vda (254:0) waits 750 ms in the queue and 250 ms for the device" in (
        latency.sentence
    )
    reads = by_topic["disk reads"]
    assert (reads.value, reads.certainty) == (50, "at most")


def sample(ts, name, value, target=None, instance=None):
    return {
        "ts": int(ts * S), "target": target, "name": name, "instance": instance, "value": value,
    }  # fmt: skip


def test_cpu_and_memory_that_are_short(found):
    rows = [
        *(sample(t, "pressure_cpu_some_time", t / 4, "job") for t in (0, 100)),
        *(sample(t, "pressure_cpu_some_time", t / 2) for t in (0, 100)),
        *(sample(t, "cpu_time", 1.8 * t) for t in (0, 100)),
        *(sample(t, "pressure_memory_some_time", t / 10) for t in (0, 100)),
        *(sample(t, "pswpin", 2560 * t) for t in (0, 10)),
        *(sample(t, "disk_use", 80.0, instance="vda") for t in range(5)),
    ]
    by_topic = found({"samples": rows})
    assert by_topic["CPU pressure"].value == 25
    assert "a task of job waits for a CPU" in by_topic["CPU pressure"].sentence
    assert by_topic["CPU use"].value == pytest.approx(90)
    assert by_topic["memory pressure"].value == 10
    assert by_topic["swap"].value == 100
    assert by_topic["swap"].sentence.startswith("100.0 MiB went to swap or came back")
    assert by_topic["disk use"].value == 80


# A number of 17 digits is read by SQL as one of so many decimals, which has no room for more.
@pytest.mark.parametrize("used", [4.0, 1.2345678901234567])
def test_the_recorder_s_own_cost(found, used):
    by_topic = found({}, own_cost={"capture_cpu_s": used, "cpu_s": 60.0})
    assert by_topic["own cost"].value == pytest.approx(used / 4)  # of 200 s of two CPUs


GAP = {"stream": "ftrace-machine", "cpu": 0, "cause": "overrun", "count": 9}


def test_losses_are_a_finding_and_mark_what_they_touch(found):
    gaps = [{**GAP, "from": 20 * S, "to": 60 * S}, {**GAP, "from": 50 * S, "to": 70 * S}]
    tables = {
        "processes": PROCESSES,
        "phases": TRAIN,
        "syscalls": [call("fsync", 10, 10)],
        "dirty": [pause(5, 2)],
        "loss": gaps,
    }
    by_topic = found(tables)
    losses = by_topic["losses"]
    assert losses.value == 25 and losses.sentence.startswith("18 events are missing, in 2 gaps")
    assert by_topic["stalls"].lossy
    assert "events were lost meanwhile" in by_topic["stalls"].sentence
    assert not by_topic["sync"].lossy  # of the targets' events none is missing

    after = {**tables, "loss": [{**GAP, "from": 150 * S, "to": 160 * S, "count": None}]}
    by_topic = found(after)
    assert not by_topic["stalls"].lossy
    assert by_topic["losses"].sentence.startswith("events nobody counted are missing")
    assert by_topic["losses"].certainty == "inferred"


def test_names_of_an_enemy_are_short_and_printable(found):
    long = "/" + "x" * 500
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [*TRAIN, phase(EVIL, 0, 1)],
            "page_faults": [*faults(60, file=EVIL, ip_file=long, symbol=EVIL)],
            "syscalls": [{**call("read", 1, 50), "name": EVIL}],
            "writeback": [start(n, EVIL) for n in range(30)],
        }
    )
    assert by_topic.keys() >= {"major faults", "page faults", "calls", "write-back reasons"}
    for one in by_topic.values():
        assert len(one.sentence) < 600 and "\x1b" not in one.sentence and "\n" not in one.sentence
        assert EVIL not in one.query


def test_an_empty_trace_has_only_what_can_be_said_of_nothing(found):
    assert found({name: [] for name in TABLES}).keys() <= {"write waits"}
    assert found({}) == {}


@pytest.mark.parametrize("end_ns", [None, 0])
def test_a_recording_without_a_length_has_no_findings(found, end_ns):
    tables = {"processes": PROCESSES, "syscalls": [call("fsync", 1, 1)], "dirty": [pause(1, 1)]}
    assert found(tables, clock={"name": "mono", "start_ns": 0, "end_ns": end_ns}) == {}


def test_numbers_that_cannot_be_do_not_break_it(found):
    most = 1 << 62
    by_topic = found(
        {
            "processes": PROCESSES,
            "phases": [phase("train", 0, None), phase("train", 9, 3), phase("step", 8, 2)],
            "syscalls": [{**call("fsync", 1, 0), "dur_ns": most}] * 3,
            "dirty": [{**pause(1, 0), "pause_ns": most}] * 3,
            "samples": [
                sample(t, series, value)
                for series in ("pressure_cpu_some_time", "cpu_time", "disk_use", "pswpin")
                for t, value in ((0, float("nan")), (5, float("inf")), (3, 1.0), (3, -1.0))
            ],
            "block": [
                {**bio(1, 0, 1), "sector": (1 << 63) + 5, "nr_sector": 8},
                *request(9, -5, -1, 3),
            ],
        }
    )
    assert by_topic["sync"].value == 100 and by_topic["stalls"].weight == 1


@pytest.fixture(scope="module")
def of_lenet():
    from tracer.store.trace import Trace

    with Trace(LENET) as trace:
        return findings(trace)


def test_each_query_gives_its_finding_s_value_by_the_verb(of_lenet, capsys):
    assert len(of_lenet) >= 8
    for one in of_lenet:
        assert first_cell(LENET, one.query, capsys) == pytest.approx(one.value), one.topic


def test_queries_of_hand_made_traces_give_their_values_too(found, capsys):
    tables = merged(
        {"processes": [*OF_CONTAINERS, *PROCESSES[2:]], "phases": TRAIN, "loss": [GAP]},
        {"syscalls": [call("fsync", 10, 10, A)], "dirty": [pause(5, 2, A)]},
        {"samples": [sample(t, "cpu_time", t) for t in (0, 100)]},
        chain(A, A, 100, 12, 0, 37),
        chain(JBD2, B, 200, 14, 1000, 63),
    )
    by_topic = found(tables, targets=CONTAINERS, own_cost={"capture_cpu_s": 4.0})
    assert by_topic.keys() >= {"tenants", "writers", "stalls", "sync", "losses", "own cost"}
    for one in by_topic.values():
        assert first_cell(found.folders[0], one.query, capsys) == pytest.approx(one.value), one


def test_findings_come_first_in_the_report(tracer, of_lenet):
    told = tracer("report", LENET, "--json").json
    assert told["findings"] == [
        {**dataclasses.asdict(one), "value": pytest.approx(one.value)} for one in of_lenet
    ]
    assert len(tracer("report", LENET, "--json", "--findings", 2).json["findings"]) == 2
    text = tracer("report", LENET).out
    assert text.index("Findings") < text.index("System calls of the targets")
    assert max(map(len, text.splitlines())) <= 80
    assert "Findings" not in tracer("report", LENET, "--findings", 0).out


def test_a_topic_is_left_out_where_its_tables_are_not_there():
    for topic in TOPICS:
        assert set(topic.needs) <= {*TABLES, "loss"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (0.04, "less than 0.1 %"),
        (0.4, "0.4 %"),
        (71.4, "71 %"),
        (99.9, "more than 99 %"),
        (100, "100 %"),
    ],
)
def test_percentages_are_short(value, text):
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (2, "2 s"),
        (0.0314, "31.4 ms"),
        (5e-6, "5 us"),
        (5e-8, "50 ns"),
        (3e4, "30,000 s"),
    ],
)
def test_times_are_in_a_unit_that_fits(value, text):
    assert seconds(value) == text


def test_a_path_is_its_file_and_a_name_keeps_its_end():
    assert file_name("/usr/lib/libtorch_cpu.so") == "libtorch_cpu.so"
    assert file_name("[anon]") == "[anon]"
    assert file_name(None) == "a file that is not known"
    assert name("a" * 100 + "end").endswith("end") and len(name("a" * 1000)) < 90
    assert name("a\x1b\n") == r"a\x1b\x0a"
