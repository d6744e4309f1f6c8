"""Marks: what is written is what is read, whoever writes it and however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.phases import marks_file, read_phases, read_table
from tracer import phases
from tracer.phases.format import AUTOMATIC, BEGIN, END, RECORD_BYTES, STOPPED
from tracer.store.phases import write_phases


@pytest.fixture
def folder(tmp_path):
    phases.enable(str(tmp_path))
    yield tmp_path
    phases.disable()


read = read_phases


def test_a_phase_has_begin_end_and_numbers(folder):
    with phases.phase("train", epoch=2, step=5):
        pass
    (row,) = read(folder)
    assert (row["name"], row["epoch"], row["step"]) == ("train", 2, 5)
    assert row["end"] >= row["start"] > 0
    assert (row["pid"], row["tid"]) == (os.getpid(), threading.get_native_id())


def test_an_inner_phase_inherits_the_numbers_that_it_does_not_give(folder):
    with phases.phase("epoch", epoch=3), phases.phase("step", step=7), phases.phase("forward"):
        pass
    assert [(r["name"], r["epoch"], r["step"]) for r in read(folder)] == [
        ("epoch", 3, None),
        ("step", 3, 7),
        ("forward", 3, 7),
    ]


def test_a_decorated_function_is_a_phase_each_call(folder):
    @phases.phase("eval")
    def run(x):
        return x + 1

    assert [run(1), run(2)] == [2, 3]
    assert [r["name"] for r in read(folder)] == ["eval", "eval"]


def test_an_exception_ends_its_phases(folder):
    with pytest.raises(ValueError, match="boom"), phases.phase("train"), phases.phase("step"):
        raise ValueError("boom")
    assert [r["end"] is not None for r in read(folder)] == [True, True]


def test_an_end_closes_what_was_left_open_inside(folder):
    phases.begin("train")
    phases.begin("forward")
    phases.end("train")
    assert {r["name"]: r["end"] is not None for r in read(folder)} == {
        "train": True,
        "forward": True,
    }


def test_phases_that_overlap_without_nesting_end_too_early_and_are_counted(folder):
    async def task(name):
        with phases.phase(name):
            await asyncio.sleep(0)  # the other task's turn

    async def both():
        await asyncio.gather(task("a"), task("b"))

    asyncio.run(both())
    (building := folder / "building").mkdir()
    _, lost = write_phases(folder, 0, None, building)
    first, second = read_table(building)
    assert first["start"] < second["start"] < second["end"] == first["end"]
    assert list(lost.values()) == [1]


def test_an_overlapping_phase_is_counted_once_and_one_left_open_is_not(tmp_path):
    marks_file(
        tmp_path,
        *(
            (ts, kind, 5, 5, name, -1, -1)
            for ts, kind, name in [
                *((10, BEGIN, b"a"), (20, BEGIN, b"b"), (30, END, b"a"), (90, END, b"b")),
                *((91, END, b"b"), (92, BEGIN, b"a"), (93, BEGIN, b"c"), (94, END, b"a")),
                *((95, BEGIN, b"c"), (96, END, b"c"), (97, END, b"c")),
            ]
        ),
    )
    (building := tmp_path / "building").mkdir()
    _, lost = write_phases(tmp_path, 0, None, building)
    assert list(lost.values()) == [1]
    assert [(row["name"], row["end"]) for row in read_table(building)] == [
        *(("a", 30), ("b", 30), ("a", 94), ("c", 94), ("c", 96)),
    ]


def test_more_marks_than_a_chunk_holds(folder):
    for step in range(5000):
        with phases.phase("step", step=step):
            pass
    assert [r["step"] for r in read(folder)] == list(range(5000))


def test_threads_do_not_mix(folder):
    def run(epoch):
        for step in range(700):
            with phases.phase("step", epoch=epoch, step=step):
                pass

    threads = [threading.Thread(target=run, args=(epoch,)) for epoch in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = read(folder)
    assert len({r["tid"] for r in rows}) == 7
    for epoch in range(7):
        assert [r["step"] for r in rows if r["epoch"] == epoch] == list(range(700))


def test_a_forked_child_marks_as_itself(folder):
    with phases.phase("train"):
        child = os.fork()
        if child == 0:
            phases.begin("fetch")
            phases.end("fetch")
            os._exit(0)
        os.waitpid(child, 0)
    assert {(r["name"], r["pid"]) for r in read(folder)} == {
        ("train", os.getpid()),
        ("fetch", child),
    }


def test_a_long_name_is_cut_between_characters(folder):
    with phases.phase("ä" * 40):
        pass
    assert read(folder)[0]["name"] == "ä" * 15


def test_without_a_recording_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not phases.enabled()
    with phases.phase("train"):
        phases.begin("x")
        phases.end("x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_does_not_disturb_the_job(tmp_path):
    phases.enable(str(tmp_path / "gone"))
    with phases.phase("train"):
        pass
    assert not phases.enabled()


NO_MORE = """
from tracer import phases
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # the next file would be larger
phases.begin("train")
for s in range(101):
    with phases.phase("step", step=s): pass
    if s == 29: phases.begin("own")
phases.end("train")
assert not phases.enabled()
"""


def test_marks_without_room_for_the_next_file_end_there_and_say_so(tmp_path):
    environment = {**os.environ, phases.MARKS_ENV: str(tmp_path)}
    subprocess.run([sys.executable, "-c", NO_MORE], env=environment, check=True)
    (building := tmp_path / "building").mkdir()
    _, lost = write_phases(tmp_path, 0, None, building)
    assert lost == {"processes stopped to make marks: their next file could not be made": 1}
    rows = read_table(building)
    names = [row["name"] for row in rows]
    assert {name: names.count(name) for name in names} == {"train": 1, "step": 31, "own": 1}
    steps = [row["end"] for row in rows if row["name"] == "step"]
    ends = [row["end"] for row in rows if row["name"] != "step"]
    assert steps == sorted(steps)
    assert ends == [steps[-1]] * 2
    assert steps[-2] < steps[-1]


@pytest.mark.parametrize("stops", ["script", "torch"])
def test_a_writer_that_stops_ends_its_own_phases_only(tmp_path, stops):
    """PyTorch's writer and the script's write in one process and do not know each other."""
    script = [(1, BEGIN, 5, 5, b"epoch", 3, -1), (9, END, 5, 5, b"epoch", 0, 0)]
    facts = [(2, BEGIN | AUTOMATIC, 5, 5, b"backward", -1, -1),
             (8, END | AUTOMATIC, 5, 5, b"backward", -1, -1)]  # fmt: skip
    marks = {"script": script, "torch": facts}
    marks[stops][1:] = [(5, STOPPED, 5, 6, b"", -1, -1)]
    marks_file(tmp_path, *script, process="5-1")
    marks_file(tmp_path, *facts, process="5-2")
    ends = {row["name"]: row["end"] for row in read(tmp_path)}
    expected = {"script": (5, 8), "torch": (9, 5)}[stops]
    assert (ends["epoch"], ends["backward"]) == expected


def test_marks_survive_sigkill_up_to_the_last(tmp_path):
    script = (
        "from tracer import phases; import os, signal\n"
        "phases.begin('train')\n"
        "for s in range(101):\n"
        "    with phases.phase('step', step=s): pass\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, phases.MARKS_ENV: str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    rows = read(tmp_path)
    assert [r["step"] for r in rows if r["name"] == "step"] == list(range(101))
    assert [r["end"] for r in rows if r["name"] == "train"] == [None]


def test_only_what_overlaps_the_recording_is_kept(folder):
    import time

    with phases.phase("before"):
        pass
    start = time.monotonic_ns()
    with phases.phase("within"):
        pass
    end = time.monotonic_ns()
    with phases.phase("after"):
        pass
    found = read_phases(folder, start, end)
    assert [r["name"] for r in found] == ["within"]


def test_records_that_were_never_finished_or_are_noise_are_passed_over(folder):
    with phases.phase("train"):
        pass
    (path,) = folder.glob("*.marks")
    data = bytearray(path.read_bytes())
    data[3 * RECORD_BYTES : 4 * RECORD_BYTES] = b"\x01" * RECORD_BYTES
    path.write_bytes(data + b"torn")
    (folder / "noise.marks").write_bytes(os.urandom(64 * 50))
    (folder / "link.marks").symlink_to("/etc/passwd")
    assert "train" in [r["name"] for r in read(folder)]


def test_the_module_needs_nothing_but_the_standard_library():
    script = (
        "import sys; from tracer import phases\n"
        "ours = {name for name in sys.modules if name.startswith('tracer.')}\n"
        "assert all(name.startswith('tracer.phases') for name in ours), ours\n"
        "foreign = sys.modules.keys() & {'numpy', 'rich', 'typer', 'psutil'}\n"
        "assert not foreign, foreign\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("number", [0.5, 2**70, float("nan"), float("inf"), "7", object(), -1])
def test_a_number_that_is_none_does_not_harm_the_job(folder, number):
    with phases.phase("train", epoch=number, step=number):
        pass
    (row,) = read(folder)
    assert row["name"] == "train"
    assert row["epoch"] in (None, 0, 7, -1)


def test_collecting_marks_does_not_harm_a_job_that_goes_on(tmp_path):
    import time

    from tracer.session.marks import Marks

    script = (
        "from tracer import phases; import time\n"
        "for s in range(30):\n"
        "    with phases.phase('step', step=s): time.sleep(0.03)\n"
    )
    environment = {**os.environ, phases.MARKS_ENV: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as job:
        while not read(tmp_path):
            time.sleep(0.01)
        (tmp_path / "kept").mkdir()
        Marks(tmp_path / "kept", tmp_path).collect()
        assert job.wait() == 0
    kept = list((tmp_path / "kept").glob("*.marks"))
    assert len(read(tmp_path / "kept")) >= 1
    assert sum(path.stat().st_size for path in kept) < 64 * 60


def test_marks_of_earlier_runs_are_not_collected(tmp_path):
    from tracer.session.marks import Marks
    from tracer.targets import from_pids

    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir(), ours.mkdir()
    (theirs / "4000000-17-0.marks").write_bytes(bytes(64))
    script = (
        "from tracer import phases; import sys\n"
        "phases.begin('train'); print(flush=True); sys.stdin.readline()\n"
    )
    environment = {**os.environ, phases.MARKS_ENV: str(theirs)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as job:
        job.stdout.readline()
        marks = Marks(ours, tmp_path / "none")
        marks.find(from_pids(str(job.pid)))
        marks.collect()
        job.kill()
    assert [row["pid"] for row in read(ours)] == [job.pid]
    assert not (ours / "4000000-17-0.marks").exists()


def test_the_pids_of_a_container_become_those_of_this_machine(tmp_path):
    marks_file(
        tmp_path,
        (1, BEGIN, 5, 5, b"train", 0, 0), (2, END, 5, 5, b"train", 0, 0),
        (3, BEGIN, 5, 6, b"eval", 0, 0), (4, END, 5, 6, b"eval", 0, 0),
        (5, BEGIN, 5, 7, b"fetch", 0, 0), (6, END, 5, 7, b"fetch", 0, 0),
    )  # fmt: skip
    names = [("5-1", 5, 900, [(5, 900), (6, 901)])]
    found = read_phases(tmp_path, 0, None, names=names)
    assert [(r["name"], r["pid"], r["tid"]) for r in found] == [
        ("train", 900, 900),
        ("eval", 900, 901),
        ("fetch", 900, None),
    ]


def test_the_pid_of_a_process_that_was_gone_is_unknown(tmp_path):
    marks_file(tmp_path, (1, BEGIN, 5, 5, b"train", 0, 0), (2, END, 5, 5, b"train", 0, 0))
    (row,) = read_phases(tmp_path, 0, None, names=[("5-1", 5, 0, [])])
    assert (row["name"], row["pid"], row["tid"]) == ("train", None, None)


@pytest.mark.parametrize("number", [0, -1, -900, -(1 << 31), (1 << 31) - 1])
def test_marks_cannot_claim_another_s_pid(tmp_path, number):
    """A container's file says what it likes; none of it is a process of this machine."""
    lowest = -(1 << 63)
    marks_file(
        tmp_path,
        (1, BEGIN | AUTOMATIC, number, number, b"worker", lowest, lowest),
        (2, END | AUTOMATIC, number, number, b"worker", lowest, number),
        (3, BEGIN | AUTOMATIC, number, 5, b"fetch", (1 << 63) - 1, -1),
        (4, BEGIN, number, number, b"train", lowest, (1 << 63) - 1),
        (5, BEGIN, 5, number, b"step", lowest, lowest + 1),
    )
    found = read_phases(tmp_path, 0, None, names=[("5-1", 5, 900, [(5, 900)])])
    for row in found:
        assert row["pid"] in (None, 900)
        assert row["tid"] in (None, 900)
