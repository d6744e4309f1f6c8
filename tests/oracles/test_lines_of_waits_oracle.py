"""The stacks and lines of waits, and the export of them, agree with the naive ones."""

import random
import re
from collections import Counter, defaultdict

import pytest

from tests.fuzz.verbs import called
from tests.oracles.drawing import batches
from tests.oracles.drawn_looks import END, LAST, START, TICK, drawn
from tests.oracles.lines_of_waits import FILES, answers, interval_around
from tests.support.traces import make_trace
from tracer.analysis.views.catalogue import VIEWS

pytestmark = pytest.mark.slow

JOBS = 100
"""Cases in a trace."""
MS = 10**6
NOBODY = "[no look at this wait]"
FIELDS = re.compile(r"(?P<target>[ab]\d+)[^;]*;(?P<thread>t\d+p\d+)[^;]*;(?P<rest>.*) (?P<us>\d+)")
KIND = re.compile(r"\[(?P<kind>[a-z]+)(: [^;]*)?\]")
MAIN = "main (/home/me/main.py:1)"
TARGETS = [{"name": "job", "role": "target", "kind": "pid", "pid": 7}]
NOT_OF_THE_USER = tuple(file for file, mine in FILES.items() if mine is False)


def rows_of(trace, name):
    VIEWS[name].make(trace)
    cursor = trace.connection.execute(f"SELECT * FROM {name}")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def traces(folder):
    """Makes traces of the cases: each with its tables and its looks."""
    for number, cases in enumerate(batches(JOBS)):
        tables, looks, manifest = drawn(cases)
        with make_trace(folder / f"t{number}", tables, **manifest) as trace:
            yield trace, tables, looks


def by_thread(things, tid_of):
    found = defaultdict(list)
    for thing in things:
        found[tid_of(thing)].append(thing)
    return found


def test_waits_and_critical_paths_have_the_stacks_and_lines_of_the_oracle(tmp_path):
    for trace, tables, all_looks in traces(tmp_path):
        looks = by_thread(all_looks, lambda look: look.tid)
        off_cpu = by_thread(tables["off_cpu"], lambda row: row["tid"])
        said = {}
        for name in ("waits", "critical_path"):
            for row in rows_of(trace, name):
                answer = row["stack"], row["line"]
                if row["kind"] == "run":
                    assert answer == (None, None), row
                    continue
                interval = interval_around(row, off_cpu[row["tid"]])
                assert answer in answers(interval, looks[row["tid"]]), (name, row)
                if interval is not None:  # all its parts have one answer
                    place = row["tid"], interval["ts"], interval["dur_ns"]
                    assert said.setdefault(place, answer) == answer, (name, row)


def owner_of(lives, tid, ts):
    """Returns the thread that has a number at a time: the last one that was created by then."""
    mine = [row for row in lives[tid] if (row.get("start_ns") or 0) <= ts]
    assert mine, (tid, ts)
    return max(mine, key=lambda row: row.get("start_ns") or 0)


def blamed(wait, interval):
    """Returns the number that a wait may name, and when, and how certain that is; None: any way.

    Each thread has a CPU of its own: no other one has a turn there that is recorded.
    """
    if wait["kind"] != "cpu":
        return interval["waker_tid"], interval["wake_ns"], None
    ran = interval["ran_tid"]
    stayed = interval["cpu"] == interval["ran_cpu"]
    certainty = "exact" if ran == 0 and stayed else "inferred"
    return ran or None, interval["ts"] + interval["dur_ns"], certainty


def test_waits_and_critical_paths_name_the_threads_that_had_the_numbers_then(tmp_path):
    """A wait for a CPU names who had it, and tells an idle CPU from one that nobody knows of."""
    for trace, tables, _ in traces(tmp_path):
        lives = by_thread(tables["processes"], lambda row: row["tid"])
        off_cpu = by_thread(tables["off_cpu"], lambda row: row["tid"])
        named = 0
        for row in rows_of(trace, "waits"):
            interval = interval_around(row, off_cpu[row["tid"]]) if row["dur_ns"] else None
            if interval is None or row["kind"] == "throttled":
                continue
            interval = {"waker_tid": None, "wake_ns": None, **interval}
            tid, when, certainty = blamed(row, interval)
            assert row["by_tid"] == tid or (row["by_tid"] is None and certainty is None), row
            assert certainty in (None, row["certainty"]), row
            if row["by_tid"]:
                named += 1
                assert row["by_comm"] == owner_of(lives, tid, when)["comm"], row
        assert named
        for row in rows_of(trace, "critical_path"):
            assert row["comm"] == owner_of(lives, row["tid"], row["ts"])["comm"], row


def waits_of(folder, **tables):
    """Returns the waits of a thread that sleeps from 100 to 200, from 300 to 400, and so on."""
    mine = {"pid": 7, "tid": 7, "target": "job", "role": "target", "comm": "x", "ppid": 1}
    sleeps = [
        {"ts": ts, "dur_ns": 100, "state": "S", "pid": 7, "tid": 7}
        for ts in range(100, 200 * len(NOT_OF_THE_USER) + 100, 200)
    ]
    tables |= {"processes": [mine], "off_cpu": sleeps}
    with make_trace(folder, tables, targets=TARGETS) as trace:
        return {row["ts"]: (row["stack"], row["line"]) for row in rows_of(trace, "waits")}


@pytest.mark.parametrize("tables", [{}, {"python_stacks": []}], ids=["no table", "no row"])
def test_without_looks_waits_have_no_stack(tmp_path, tables):
    assert set(waits_of(tmp_path / "t", **tables).values()) == {(None, None)}


@pytest.fixture(scope="module")
def waits_in_libraries(tmp_path_factory):
    """Waits in a function of each file that is not the user's, which the user's function calls."""
    looks = [
        {"ts": ts, "until_ns": ts + 100, "pid": 7, "tid": 7, "stack": f"{MAIN};f ({file}:7)"}
        for ts, file in zip(range(100, 10**9, 200), NOT_OF_THE_USER, strict=False)
    ]
    return waits_of(tmp_path_factory.mktemp("libraries") / "t", python_stacks=looks)


@pytest.mark.parametrize("file", NOT_OF_THE_USER)
def test_a_line_is_not_one_of_python_or_of_a_package(waits_in_libraries, file):
    found = waits_in_libraries[100 + 200 * NOT_OF_THE_USER.index(file)]
    assert found == (f"{MAIN};f ({file}:7)", MAIN)


def exported(path):
    """Returns the us of each target, thread, functions and kind; no name ends a line or a field."""
    found = Counter()
    for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n"):
        fields = FIELDS.fullmatch(line)
        assert fields, line
        functions, kind = fields["rest"].rsplit(";", 1)
        assert KIND.fullmatch(kind), line
        key = fields["target"], fields["thread"], functions, KIND.fullmatch(kind)["kind"]
        found[key] += int(fields["us"])
    return found


def waited(rows, begin, end):
    """Returns the ns that `exported` should have, and the most lines that these may be in."""
    found, lines = Counter(), defaultdict(set)
    for row in rows:
        if row["dur_ns"] is None:
            continue
        length = min(end, row["ts"] + row["dur_ns"]) - max(begin, row["ts"])
        if length > 0:
            target = re.match(r"[ab]\d+", row["target"])[0]
            thread = re.match(r"t\d+p\d+", row["comm"])[0]
            key = target, thread, row["stack"] or NOBODY, row["kind"]
            found[key] += length
            lines[key].add((row["call"], row["detail"], row["by_tid"], row["by_comm"]))
    return found, {key: len(those) for key, those in lines.items()}


def compare(said, ns, lines):
    """Compare times by stack and by thread, within 1 us a line."""
    for parts in (4, 2):
        sums, expected, most = Counter(), Counter(), Counter()
        for key in said.keys() | ns.keys():
            sums[key[:parts]] += said[key]
            expected[key[:parts]] += ns[key]
            most[key[:parts]] += lines.get(key, 0)
        for key, value in expected.items():
            assert abs(sums[key] - value / 1000) <= most[key], key


def test_the_export_folded_has_the_time_of_the_waits(tmp_path):
    """Compare a window of every second trace, else the whole trace."""
    numbers, path = random.Random(1), tmp_path / "folded"
    for number, (trace, _, _) in enumerate(traces(tmp_path)):
        begin, end, options = 0, END, []
        if number % 2:
            since, until = sorted(numbers.sample(range((LAST - START // TICK) * TICK // MS), 2))
            begin, end = START + since * MS, START + until * MS
            options = ["--from", since / 1000, "--to", until / 1000]
        called("export", trace.folder, "--format", "folded", "-o", path, "--force", *options)
        compare(exported(path), *waited(rows_of(trace, "waits"), begin, end))
