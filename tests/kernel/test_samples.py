"""Samples of real loads against what others read: the kernel's own files, time, fincore."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import do_without
from tests.support.backends import every_backend
from tests.support.cgroups import own_cgroup
from tests.support.waiting import wait_for
from tests.support.warm import Tracer
from tracer.probes.cgroups import UNIFIED
from tracer.probes.sampler import residency
from tracer.probes.sampler.catalogue import COUNTERS
from tracer.store.trace import Trace
from tracer.targets.cgroups import hierarchies

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
CACHED, PAGES = 13, 40
BUSY = """
    import os, sys, time
    held = bytearray(os.urandom(1 << 20)) * 300
    while sum(os.times()[:2]) < 1.5: pass
"""


@pytest.fixture
def sampled(tracer, tmp_path):
    """Record with these options; returns the opened trace."""
    opened = []

    def run(*options):
        folder = tmp_path / f"{len(opened)}.trace"
        probes = () if "none" in options else ("-e", "processes")
        tracer("record", "-o", folder, *probes, *options)
        opened.append(Trace(folder))
        return opened[-1]

    yield run
    for trace in opened:
        trace.close()


def values(trace, name, target="job", instance=None):
    """A series over time; `target` None: the machine's."""
    of = "target IS NULL" if target is None else "target IS NOT NULL"
    which = "" if instance is None else f"AND instance = '{instance}'"
    query = f"SELECT value FROM samples WHERE name = ? AND {of} {which} ORDER BY ts"
    return [value for (value,) in trace.connection.execute(query, [name]).fetchall()]


def stat(pid):
    """utime + stime + cutime + cstime of /proc/PID/stat in s, and the pages of its statm."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return sum(map(int, fields[11:15])) / TICKS, resident * PAGE


def test_a_commands_last_sample_is_what_time_says_of_it(sampled, load, tmp_path):
    if shutil.which("time") is None:
        do_without("/usr/bin/time", "TRACER_REQUIRE_KERNEL", "it is not installed")
    told = tmp_path / "told"
    trace = sampled("--sample-hz", "10", "--", "time", "-v", "-o", told, *load(BUSY))
    said = dict(re.findall(r"\t(\w[\w ()]*): ([\d.]+)", told.read_text()))
    seconds = float(said["User time (seconds)"]) + float(said["System time (seconds)"])
    assert values(trace, "cpu_time")[-1] == pytest.approx(seconds, rel=0.02)
    peak = int(said["Maximum resident set size (kbytes)"]) * 1024
    assert max(values(trace, "rss")) == pytest.approx(peak, rel=0.02)
    faults = int(said["Minor (reclaiming a frame) page faults"])
    assert values(trace, "minor_faults")[-1] == pytest.approx(faults, rel=0.02)


def test_a_process_with_an_ended_child_is_what_proc_says_of_both(sampled, load):
    source = """
        import os, sys, time
        held = bytearray(os.urandom(1 << 20)) * 200
        if os.fork() == 0:
            while sum(os.times()[:2]) < 0.5: pass
            os._exit(0)
        os.wait()
        print("done", flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(load(source), stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout.readline() == "done\n"
            trace = sampled("--sample-hz", "10", "-p", job.pid, "-d", "0.5")
            seconds, resident = stat(job.pid)
        finally:
            job.kill()
    assert set(values(trace, "cpu_time")) == {seconds}
    assert set(values(trace, "cpu_use")) == {0.0}
    assert values(trace, "rss")[-1] == pytest.approx(resident, rel=0.02)


def test_the_time_that_the_host_took_is_what_proc_says(sampled):
    def taken():
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / TICKS

    before = taken()
    seen = values(sampled("--sample-hz", "10", "--", "sleep", "0.3"), "steal_time", None)
    assert len(seen) > 2
    assert before <= seen[0] <= seen[-1] <= taken()


def test_the_cpu_time_of_orphans_is_kept_when_they_end(sampled, load):
    """A child whose parent has ended is the init process's: /proc forgets what it used."""
    source = """
        import os, time
        if os.fork() == 0:
            while sum(os.times()[:2]) < 0.5: pass
            time.sleep(0.3)
            os._exit(0)
        import contextlib, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with contextlib.suppress(ChildProcessError): os.wait()  # until it has ended
        time.sleep(0.3)
    """
    trace = sampled("--sample-hz", "20", "--", *load(source))
    seen = values(trace, "cpu_time")
    assert seen == sorted(seen)
    assert seen[-1] >= 0.5


@pytest.mark.parametrize("backend", ["auto", "ftrace", "ebpf"])
def test_a_daemon_that_is_orphaned_at_once_is_in_the_samples(sampled, load, backend):
    source = """
        import os, time
        told, tells = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                while sum(os.times()[:2]) < 0.5: pass
                time.sleep(0.3)
            os._exit(0)
        os.wait()
        os.close(tells)
        os.read(told, 1)
    """
    options = ("--backend", backend, "-e", "syscalls", "--sample-hz", "20")
    trace = sampled(*options, "--", *load(source))
    assert max(values(trace, "processes")) >= 2
    assert values(trace, "cpu_time")[-1] >= 0.5


def iostat(disk):
    """Bytes written to a disk since boot."""
    said = subprocess.run(["iostat", "-d", "-k", "-o", "JSON", disk],
                          check=True, capture_output=True)  # fmt: skip
    (found,) = json.loads(said.stdout)["sysstat"]["hosts"][0]["statistics"][0]["disk"]
    return found["kB_wrtn"] * 1024


def test_bytes_that_dd_wrote_are_bytes_that_the_disk_wrote(sampled, file_system):
    if shutil.which("iostat") is None:
        do_without("iostat", "TRACER_REQUIRE_KERNEL", "it is not installed")
    mount, _ = file_system()
    source = subprocess.run(
        ["findmnt", "-no", "SOURCE", mount], check=True, capture_output=True, text=True
    )
    disk = Path(source.stdout.strip()).name
    known = 101 << 20
    before = iostat(disk)
    trace = sampled(
        "--", "dd", "if=/dev/zero", f"of={mount}/f", "bs=1M", "count=101", "oflag=direct",
        "status=none",
    )  # fmt: skip
    first, *_, last = values(trace, "disk_written_bytes", None, disk)
    assert last - first == pytest.approx(known, rel=0.02)
    assert last - first >= known
    assert last - first == pytest.approx(iostat(disk) - before, rel=0.02)
    rates = trace.sql(
        "SELECT value, (ts - lag(ts) OVER (ORDER BY ts)) / 1e9 AS s FROM samples "
        f"WHERE name = 'write_throughput' AND instance = '{disk}' ORDER BY ts"
    )
    assert rates["value"].max() > 0


def test_machine_counters_lie_between_readings_before_and_after(sampled):
    def vmstat():
        text = Path("/proc/vmstat").read_text()
        return {k: int(v) for k, v in (line.split() for line in text.splitlines())}

    before = vmstat()
    trace = sampled("--sample-hz", "10", "--", "true")
    after = vmstat()
    for name in ("pgfault", "pgmajfault"):
        seen = values(trace, name, None)
        assert before[name] <= seen[0] <= seen[-1] <= after[name]


@pytest.fixture
def half_cached(tmp_path):
    """A folder with a file of PAGES pages, of which CACHED are in the page cache."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "file"
    path.write_bytes(os.urandom(PAGE * PAGES))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    for page in range(CACHED):
        os.pread(fd, 1, 3 * page * PAGE)
    yield folder
    os.close(fd)


def test_residency_is_the_pages_that_were_read_as_fincore_has_it(sampled, half_cached):
    (half_cached / "link").symlink_to("/etc/passwd")
    (half_cached / "empty").touch()
    trace = sampled("--residency", half_cached, "--", "true")
    assert set(values(trace, "resident_pages", None, half_cached)) == {CACHED}
    assert set(values(trace, "file_pages", None, half_cached)) == {PAGES}
    assert set(values(trace, "residency", None, half_cached)) == {100 * CACHED / PAGES}
    told = subprocess.run(
        ["fincore", "-bnro", "PAGES", half_cached / "file"], check=True, capture_output=True
    )
    assert int(told.stdout) == CACHED


def test_mincore_says_what_cachestat_says(half_cached, monkeypatch):
    path = str(half_cached / "file")
    by_either = residency.resident_pages(path)
    monkeypatch.setattr(residency, "_cachestat", lambda fd: None)
    assert residency.resident_pages(path) == by_either == (CACHED, PAGES)


def test_a_folder_of_too_many_files_is_cut_and_says_so(sampled, tmp_path, monkeypatch):
    monkeypatch.setattr(residency, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"x")
    reader = residency.Residency([tmp_path])
    assert ("file_pages", str(tmp_path), 3) in reader.read()
    assert reader.missing == {f"residency of {tmp_path}": "all but the first 3 files"}


def test_a_cgroup_gives_its_memory_and_cpu_as_its_own_files_do(sampled, load, cgroup):
    source = f"""
        import os, time
        with open("{cgroup}/cgroup.procs", "w") as file: file.write(str(os.getpid()))
        held = bytearray(os.urandom(1 << 20)) * 100
        while sum(os.times()[:2]) < 0.3: pass
        print("done", flush=True)
        time.sleep(600)
    """
    files = {
        "memory.usage_in_bytes": ("cgroup_memory", 1),
        "memory.current": ("cgroup_memory", 1),
        "cpuacct.usage": ("cgroup_cpu_time", 1e9),
        "cpu.stat": ("cgroup_cpu_time", 1e6),
    }
    with subprocess.Popen(load(source), stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout.readline() == "done\n"
            trace = sampled("--cgroup", cgroup, "-d", "0.5")
            told = {
                name: float((cgroup / name).read_text().removeprefix("usage_usec ").split()[0])
                for name in files
                if (cgroup / name).exists()
            }
        finally:
            job.kill()
    assert told
    for name, value in told.items():
        series, factor = files[name]
        assert values(trace, series)[-1] == pytest.approx(value / factor, rel=0.02)


def pressure_s(folder, who):
    lines = (folder / "cpu.pressure").read_text().splitlines()
    (total,) = (line.rpartition("total=")[2] for line in lines if line.startswith(who))
    return int(total) / 1e6


def test_a_cgroup_gives_the_time_in_which_all_its_tasks_wait_for_a_cpu(sampled, load):
    """Two tasks want the same CPU, and one of them is the only one of the cgroup."""
    pressures = [h for h in hierarchies() if h.number == UNIFIED]
    why = None if pressures else "no hierarchy of version 2 is mounted"
    machine = Path("/proc/pressure/cpu")
    if why is None and not (machine.exists() and "full" in machine.read_text()):
        why = "the kernel does not measure how long all tasks of a cgroup wait for a CPU"
    do_without("the pressure of cgroups", "TRACER_REQUIRE_KERNEL", why)
    (unified,) = pressures
    busy = "import os, time\nos.sched_setaffinity(0, {0})\nwhile True: pass"
    with own_cgroup(unified) as folder, subprocess.Popen(load(busy)) as other:
        job = subprocess.Popen(load(busy))
        try:
            (folder / "cgroup.procs").write_text(str(job.pid))
            wait_for(lambda: pressure_s(folder, "full") > 0, "a wait for the CPU")
            before = pressure_s(folder, "full")
            trace = sampled("--backend", "none", "--cgroup", folder, "-d", "0.5")
            after = pressure_s(folder, "full")
        finally:
            for process in (job, other):
                process.kill()
                process.wait()
        root = sampled("--backend", "none", "--cgroup", unified.mount, "-d", "0.1")
    found = values(trace, "pressure_cpu_full_time")
    assert before <= found[0] < found[-1] <= after
    assert max(values(trace, "pressure_cpu_full")) <= 100
    assert not values(trace, "pressure_cpu_full_time", target=None)
    assert values(root, "pressure_cpu_some_time")
    assert not values(root, "pressure_cpu_full_time")


def test_the_first_and_the_last_sample_lie_around_the_targets_events(tracer, tmp_path, load):
    source = "import os\nfor _ in range(23): os.getppid()"
    tracer("record", "-o", "x.trace", "-e", "syscalls", "--", *load(source))
    with Trace(tmp_path / "x.trace") as trace:
        first, last, begin, end = trace.connection.execute(
            "SELECT (SELECT min(ts) FROM samples), (SELECT max(ts) FROM samples), min(ts), max(ts) "
            "FROM syscalls"
        ).fetchone()
        assert first < begin < end < last
        clock = trace.manifest["clock"]
        assert clock["start_ns"] < first < last < clock["end_ns"]


@every_backend
def test_the_sampler_is_in_no_recording(tracer, tmp_path, load, backend):
    tracer(
        "record", "-o", "x.trace", "--backend", backend, "-e", "syscalls,block", "--sample-hz",
        "100", "-a", "-d", "0.5",
    )  # fmt: skip
    with Trace(tmp_path / "x.trace") as trace:
        own = trace.manifest["recorder"]["pid"]
        query = "SELECT count(*) FROM syscalls WHERE pid = ?"
        assert trace.connection.execute(query, [own]).fetchone() == (0,)
        assert len(values(trace, "pgfault", None)) > 2


def test_sample_hz_0_takes_no_samples(sampled, tracer):
    trace = sampled("--sample-hz", "0", "--", "true")
    assert "samples" not in trace.tables
    assert not (trace.folder / "raw/samples.jsonl").exists()
    assert "samples" not in tracer("report", trace.folder, "--json").json["tables"]


def test_a_rate_below_any_clock_leaves_the_first_and_the_last_sample(sampled):
    trace = sampled("--backend", "none", "--sample-hz", "1e-300", "--", "true")
    assert len(values(trace, "pgfault", None)) == 2


def test_a_baseload_has_no_target_and_ends_after_its_time(tracer, tmp_path):
    tracer("record", "--baseload", "-d", "0.5", "-o", "idle.trace")
    info = tracer("info", "idle.trace", "--json").json
    assert (info["targets"], info["ended_by"], info["complete"]) == ([], "duration", True)
    assert info["tables"]["samples"]["rows"] > 0


def test_series_that_the_machine_lacks_are_listed_and_have_no_rows(sampled, tracer):
    trace = sampled("--", "true")
    missing = trace.manifest["samples"]["not_available"]
    assert missing["cgroup"] == "no target is a container or a cgroup"
    assert not values(trace, "cgroup_memory")
    shown = " ".join(tracer("info", trace.folder).out.split())
    for what, why in missing.items():
        assert f"no samples {what}: {why}" in shown


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--sample-hz", "-1"), "--sample-hz -1 is out of range"),
        (("--sample-hz", "100.5"), "--sample-hz 100.5 is out of range"),
        (("--sample-hz", "nan"), "--sample-hz nan is out of range"),
        (("--residency", "/proc/version"), "/proc/version is not one"),
        (("--residency", "/", "--sample-hz", "0"), "takes none"),
        (("--baseload",), "--baseload records no target"),
    ],
)
def test_options_that_cannot_be_are_refused_and_nothing_is_made(tracer, tmp_path, options, what):
    ended = tracer("record", "-o", "x.trace", *options, "--", "true", status=2)
    assert what in ended.err
    assert not (tmp_path / "x.trace").exists()


def test_a_killed_recorder_leaves_every_sample_that_it_took(tmp_path, load):
    with subprocess.Popen(load("import time\ntime.sleep(600)")) as job:
        try:
            options = ("-e", "processes", "--sample-hz", "50", "-p", job.pid)
            recorder = Tracer("record", "-o", "x.trace", *options, cwd=tmp_path)
            path = tmp_path / "x.trace/raw/samples.jsonl"
            wait_for(lambda: path.exists() and path.read_bytes().count(b"pgfault") >= 5, "samples")
            recorder.send_signal(signal.SIGKILL)
            recorder.communicate()
        finally:
            job.kill()
    with Trace(tmp_path / "x.trace") as trace:
        taken = [json.loads(line) for line in path.read_text().splitlines()]
        wanted = sum(len(readings) for _, _, readings in taken)
        counted = "SELECT count(*) FROM samples WHERE name NOT IN (SELECT unnest(?))"
        (rows,) = trace.connection.execute(counted, [list(COUNTERS)]).fetchone()
        assert rows == wanted
        (last,) = trace.connection.execute("SELECT max(ts) FROM samples").fetchone()
        assert last == taken[-1][0]
        assert trace.manifest["ended_by"] == "killed"
