"""The verb `predict`: its text, JSON and page; wrong arguments; traces that lack what it needs."""

import re

import pytest

from tests.support.page_events import (
    JOB,
    ONE,
    OTHER,
    PAGE,
    PEER,
    TWO,
    PageEvents,
    looped,
    sample,
    scanned,
)
from tests.support.traces import make_trace

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>\x1b[2J\n\u202e" + "x" * 300


def make_loop(folder, **more):
    """Makes the trace of a job that reads 1 MiB in three epochs; returns its path."""
    made = looped(pages=256, epochs=3)
    tables = {**made.tables, **more}
    make_trace(folder, tables, targets=ONE, clock=made.clock).close()
    return folder


def test_json_has_each_epoch_and_memory(tracer, tmp_path):
    make_loop(tmp_path / "a.trace")
    told = tracer("predict", "a.trace", "--memory", "2M,512K,2M", "--read-ahead", 0, "--json").json
    assert told["trace"] == "a.trace"
    rows = [
        (one["memory_bytes"], one["epoch"], one["lru_pages"], one["resident_pages"])
        for one in told["reads"]
    ]
    assert rows == [
        *((512 << 10, epoch, 256, 128 if epoch else 256) for epoch in range(3)),
        *((2 << 20, epoch, 0 if epoch else 256, 0 if epoch else 256) for epoch in range(3)),
    ]
    assert told["own_bytes"] == {"job": None} and told["enough_bytes"] == {"job": 1 << 20}
    assert (told["page_bytes"], told["read_ahead_bytes"], told["warm_pages"]) == (PAGE, 0, 0)
    assert (told["error"], told["limit_bytes"]) == ({"job": 0}, {})


def test_the_terminal_has_a_table_per_target_in_80_columns(tracer, tmp_path):
    made = looped(pages=256, epochs=3)
    for epoch in range(2):
        made.read(0, 64, ino=99, tid=9)
        made.end_epoch(epoch, 9)
    samples = [
        *(sample("job", "cgroup_memory", 3 << 30), sample("job", "cgroup_page_cache", 1 << 30)),
        sample("job", "cgroup_memory_max", 1023 << 30),
    ]
    tables = {**made.tables, "samples": samples}
    make_trace(tmp_path / "a.trace", tables, targets=TWO, clock=made.clock).close()
    said = tracer("predict", "a.trace", "--memory", "512K,1000.5G").out
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(said.split())
    assert "job: 2.0 GiB of the memory are its own, the rest page cache." in text
    assert "peer: its own memory is not known" in text
    assert "job: with 2.0 GiB, LRU reads no page twice." in text
    assert "peer: with 256.0 KiB, LRU reads no page twice." in text
    assert "job: of the recording itself, at its limit of 1,023.0 GiB, the kernel's model" in text
    assert "peer: of the recording itself, without a limit, the kernel's model" in text
    assert text.index("Reads of job") < text.index("Reads of peer")
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    later = [row for row in rows if row[2:3] == ["later"]]
    assert [row[:5] for row in later] == [
        ["512.0 KiB", "0.0 KiB", "later", "1.000", "0.000"],
        ["1,000.5 GiB", "998.5 GiB", "later", "1.000", "0.000"],
        ["512.0 KiB", "512.0 KiB", "later", "0.250", "0.000"],
        ["1,000.5 GiB", "1,000.5 GiB", "later", "0.250", "0.000"],
    ]


def make_two(folder, *names):
    """Makes the trace of two targets that read 1 MiB each in three epochs; returns its path."""
    made = PageEvents()
    for epoch in range(3):
        for at in range(256):
            made.read(at, ino=7)
            made.read(at, ino=9, tid=9)
        for tid in (7, 9):
            made.end_epoch(epoch, tid)
    named = dict(zip(("job", "peer"), names, strict=True))
    processes = [
        {**one, "target": named.get(one.get("target"))} for one in made.tables["processes"]
    ]
    tables = {**made.tables, "processes": processes}
    make_trace(folder, tables, targets=TWO, clock=made.clock).close()
    return folder


def make_cut(folder, epochs):
    """Makes the trace of a job that reads 1 MiB an epoch; the recording ends in the last one."""
    made = looped(pages=256, epochs=epochs - 1)
    made.read(0, 64)
    made.end_epoch(epochs - 1)
    clock = made.clock | {"end_ns": made.phases[-1]["end"] - 1}
    make_trace(folder, made.tables, targets=ONE, clock=clock).close()


def test_the_mean_of_later_epochs_leaves_out_one_that_was_recorded_in_part(tracer, tmp_path):
    make_cut(tmp_path / "a.trace", epochs=4)
    told = tracer("predict", "a.trace", "--memory", "2M", "--json").json["reads"]
    assert [(one["epoch"], one["partial"], one["used_pages"]) for one in told] == [
        *((epoch, False, 256) for epoch in range(3)),
        (3, True, 64),
    ]
    said = tracer("predict", "a.trace", "--memory", "2M").out
    assert "job: only a part of the reads of epoch 3 was recorded" in " ".join(said.split())
    later = next(line for line in said.splitlines() if " later " in line)
    assert re.split(r"\s{2,}", later.strip())[2:4] == ["later", "1.000"]


def test_a_page_shows_the_first_epoch_if_no_later_one_is_whole(tracer, tmp_path):
    make_cut(tmp_path / "a.trace", epochs=2)
    said = tracer("predict", "a.trace", "--memory", "2M").out
    assert " first " in said and " later " not in said
    tracer("predict", "a.trace", "--memory", "2M", "--html", "a.html")
    assert "The first epoch. MiB;" in (tmp_path / "a.html").read_text()


def test_targets_can_share_the_memory(tracer, tmp_path):
    make_two(tmp_path / "a.trace", "job", "peer")
    verb = ("predict", "a.trace", "--memory", "1M,2M", "--read-ahead", 0)
    told = tracer(*verb, "--shared", "--json").json
    assert told["shared"] == [["job", "peer"]] and told["recorded_shared"] == []
    sums = [(one["targets"], one["memory_bytes"], one["lru_pages"]) for one in told["sums"]]
    assert sums == [(["job", "peer"], 1 << 20, 1536), (["job", "peer"], 2 << 20, 512)]
    assert told["enough_bytes"] == {"job": 2 << 20, "peer": 2 << 20}
    for option in ("--apart", None):
        apart = tracer(*verb, *filter(None, [option]), "--json").json
        assert (apart["shared"], apart["sums"]) == ([], [])
        assert apart["enough_bytes"] == {"job": 1 << 20, "peer": 1 << 20}


def test_the_terminal_has_a_table_of_targets_that_share_the_memory(tracer, tmp_path):
    make_two(tmp_path / "a.trace", "job", "peer")
    verb = ("predict", "a.trace", "--memory", "1M,2M", "--read-ahead", 0)
    said = tracer(*verb, "--shared").out
    assert max(map(len, said.splitlines())) <= 80
    text = " ".join(said.split())
    assert "job and peer share each amount of memory." in text
    assert "job: its own memory is not known, so it counts as 0" in text
    assert "job and peer: with 2.0 MiB together, LRU reads no page twice." in text
    rows = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    all_of = [row[:4] + row[6:7] for row in rows if row[2:3] == ["all"]]
    assert all_of == [
        ["1.0 MiB", "1.0 MiB", "all", "6.000", "6.000"],
        ["2.0 MiB", "2.0 MiB", "all", "6.000", "2.000"],
    ]
    assert "for all of them" in text and "for all of them" not in tracer(*verb).out


def test_other_cgroups_below_a_limit_are_named(tracer, tmp_path):
    evil = f"/pod/{EVIL}"
    below = [(None, 30), ("/pod/job", 30), ("/pod/init", 20), (evil, 40), ("/pod/x", 50)]
    samples = [
        {**sample("job", "cgroup_memory_max", 8 << 20), "instance": "/pod"},
        *({**sample("job", "cgroup_number", at), "instance": path} for path, at in below),
    ]
    made = looped(pages=256, epochs=2)
    tables = {**made.tables, "samples": samples}
    make_trace(tmp_path / "a.trace", tables, targets=ONE, clock=made.clock).close()
    verb = ("predict", "a.trace", "--memory", "1M")
    told = tracer(*verb, "--json").json
    assert told["other_cgroups"] == {"job": ["/pod/init", evil, "/pod/x"]}
    said = " ".join(tracer(*verb).out.split())
    assert "job: the kernel's model takes /pod/init, " in said
    assert "which are below the same limit, to have no pages of files." in said
    assert "\x1b" not in said and "\u202e" not in said


@pytest.mark.slow
def test_hostile_names_of_targets_that_share_are_text(tracer, tmp_path):
    make_two(tmp_path / "a.trace", EVIL, "b" + EVIL)
    verb = ("predict", "a.trace", "--memory", "1M", "--shared")
    said = tracer(*verb).out
    assert all(one.isprintable() for one in said.split("\n"))
    assert max(map(len, said.splitlines())) <= 80
    page = tracer(*verb, "--html", "-").out
    assert "<script>alert" not in page and "\x1b" not in page and "\u202e" not in page


def test_lost_events_are_said(tracer, tmp_path):
    made = looped(pages=256, epochs=3)
    lost = {"events": 3, "windows": 1, "unknown": 0}
    for name, loss in (("a.trace", lost), ("b.trace", dict.fromkeys(lost, 0))):
        make_trace(tmp_path / name, made.tables, targets=ONE, clock=made.clock, loss=loss).close()
        said = tracer("predict", name, "--memory", "1M").out
        assert ("Events were lost" in said) == (loss is lost)
        told = tracer("predict", name, "--memory", "1M", "--json").json
        assert told["lossy"] == (loss is lost)


def test_memory_before_the_recording_is_said(tracer, tmp_path):
    made = PageEvents()
    made.cached = {(12, page) for page in range(256)}
    made.read(0, 256)
    make_trace(tmp_path / "a.trace", made.tables, targets=ONE, clock=made.clock).close()
    said = tracer("predict", "a.trace", "--memory", "1M").out
    assert "were in memory before the recording" in said
    assert " none " in said and " first " not in said and " later " not in said


@pytest.mark.parametrize(
    "memory",
    ["", "12X", "\N{FULLWIDTH DIGIT ONE}G", "0", "1M,,2M", "1M,0", "-1", "nan", "1e9", "1M 2M"],
)
def test_a_memory_that_cannot_be_is_refused_in_a_line(tracer, tmp_path, memory):
    make_loop(tmp_path / "a.trace")
    ran = tracer("predict", "a.trace", f"--memory={memory}", status=2)
    assert ran.out == "" and len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--own-memory", "--read-ahead"])
@pytest.mark.parametrize("value", ["", "x", "\N{FULLWIDTH DIGIT ONE}M", "-1"])
def test_other_sizes_that_cannot_be_are_refused_too(tracer, tmp_path, option, value):
    make_loop(tmp_path / "a.trace")
    ran = tracer("predict", "a.trace", "--memory", "1M", f"{option}={value}", status=2)
    assert ran.out == "" and "is not a size" in ran.err


def test_the_memory_has_to_be_given(tracer, tmp_path):
    make_loop(tmp_path / "a.trace")
    assert "--memory" in tracer("predict", "a.trace", status=2).err


@pytest.mark.parametrize("option", ["--memory", "--own-memory", "--read-ahead"])
@pytest.mark.parametrize(("size", "in_bytes"), [("128", "128"), ("0.5", "0.5"), ("63K", "64512")])
def test_a_size_below_one_page_is_refused(tracer, tmp_path, option, size, in_bytes):
    made = looped(pages=256, epochs=3)
    host = {"machine": "aarch64", "cpus": 2, "memory_bytes": 1 << 30, "page_size": 64 << 10}
    make_trace(tmp_path / "a.trace", made.tables, targets=ONE, clock=made.clock, host=host).close()
    given = {"--memory": "1M", option: size}
    asked = [part for pair in given.items() for part in pair]
    error = tracer("predict", "a.trace", *asked, status=2).err
    said = f"{option} {size} means {in_bytes} bytes, less than one page of 65536 bytes; give e.g. "
    assert said in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("size", ["1024T", "4K"])
def test_any_size_has_an_answer(tracer, tmp_path, size):
    make_loop(tmp_path / "a.trace")
    sizes = ("--own-memory", size, "--read-ahead", size)
    told = tracer("predict", "a.trace", "--memory", f"1M,{size}", *sizes, "--json").json
    assert len(told["reads"]) == 6
    lines = tracer("predict", "a.trace", "--memory", f"1M,{size}", *sizes).out.splitlines()
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("option", ["--memory", "--own-memory", "--read-ahead"])
def test_a_size_beyond_all_memories_is_refused(tracer, tmp_path, option):
    make_loop(tmp_path / "a.trace")
    asked = ("--memory", "1M", option, "1024.1T")
    assert tracer("predict", "a.trace", *asked, status=2).err == (
        "tracer: the size 1024.1T is too large; give at most 1024T (1 PiB)\n"
    )


def test_a_trace_without_the_page_cache_says_how_to_record_it(tracer, tmp_path):
    make_trace(tmp_path / "a.trace", {"processes": []}).close()
    ran = tracer("predict", "a.trace", "--memory", "1M", status=None)
    assert ran.status != 0 and len(ran.err.splitlines()) == 1
    assert "page_cache" in ran.err and "tracer record -e default,page_cache" in ran.err


def test_a_recording_in_which_no_target_uses_a_file_is_refused(tracer, tmp_path):
    made = PageEvents()
    made.read(0, 9, tid=OTHER)
    for number, events in enumerate((made.events, [])):
        tables = {**made.tables, "page_cache": events}
        make_trace(tmp_path / f"{number}.trace", tables, targets=ONE).close()
        ran = tracer("predict", f"{number}.trace", "--memory", "1M", status=2)
        assert len(ran.err.splitlines()) == 1 and "no target" in ran.err


def test_only_one_trace_is_predicted(tracer, tmp_path):
    (tmp_path / "all").mkdir()
    for name in "ab":
        make_loop(tmp_path / "all" / f"{name}.trace")
    assert "2 traces" in tracer("predict", "all", "--memory", "1M", status=2).err
    assert tracer("predict", "none.trace", "--memory", "1M", status=None).status != 0


@pytest.mark.slow
def test_a_page_is_never_replaced_unless_forced(tracer, tmp_path):
    make_loop(tmp_path / "a.trace")
    verb = ("predict", "a.trace", "--memory", "512K,2M", "--html")
    assert tracer(*verb, "x.html").out == ""
    page = (tmp_path / "x.html").read_text()
    assert "exists" in tracer(*verb, "x.html", status=2).err
    (tmp_path / "x.html").write_text("")
    tracer(*verb, "x.html", "--force")
    assert (tmp_path / "x.html").read_text() == page == tracer(*verb, "-").out
    assert tracer(*verb, "y.html", "--json").json["reads"]
    tracer(*verb, "-", "--json", status=2)
    tracer(*verb, "missing/x.html", status=2)


@pytest.mark.slow
def test_names_of_an_enemy_speak_to_no_terminal_and_are_text_on_the_page(tracer, tmp_path):
    process = {"pid": 7, "tid": 7, "role": "target", "target": EVIL, "comm": EVIL, "ppid": 1}
    make_loop(tmp_path / "a.trace", processes=[process])
    said = tracer("predict", "a.trace", "--memory", "1M").out
    assert all(one.isprintable() for one in said.split("\n"))
    assert max(map(len, said.splitlines())) <= 80
    text = tracer("predict", "a.trace", "--memory", "1M", "--json").out
    assert all(one.isprintable() for one in text.split("\n"))
    page = tracer("predict", "a.trace", "--memory", "1M", "--html", "-").out
    assert "<script>alert" not in page and "\x1b" not in page and "\u202e" not in page


def make_scanned(folder, scan_ns=700_000_000, scanner=JOB):
    """Makes the trace of a job whose pages a scan takes, or not, by the kernel's statistics."""
    made = scanned(scan_ns, scanner)
    targets = ONE if scanner == JOB else TWO
    make_trace(folder, made.tables, targets=targets, clock=made.clock).close()


VERB = "predict", "a.trace", "--memory", "160K,8M", "--read-ahead", 0


def cells(said):
    """The cells of each line."""
    return [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]


def test_the_terminal_shows_the_least_and_the_most_where_they_differ(tracer, tmp_path):
    make_scanned(tmp_path / "a.trace")
    said = tracer(*VERB).out
    assert max(map(len, said.splitlines())) <= 80
    later = [row[:6] for row in cells(said) if row[2:3] == ["later"]]
    assert [row[5] for row in later] == ["1.953", "1.953"]
    at = cells(said).index(["least", "1.953"])
    assert cells(said)[at - 1][:6] == later[0] and cells(said)[at + 1] == ["most", "2.012"]
    assert [row[0] for row in cells(said)].count("least") == 1
    column = [line.index("1.953") for line in said.splitlines() if "least  " in line]
    assert column == [line.rindex("2.012") for line in said.splitlines() if "most  " in line]
    assert "Least, most: the range of the kernel's model" in " ".join(said.split())
    said = tracer(*VERB[:3], "8M").out
    assert "least" not in said.lower().replace("the least recently", "")


def test_a_range_that_is_shown_with_the_same_digits_is_none(tracer, tmp_path):
    """30 pages more of 130,000: 507.8 MiB in any case."""
    made = scanned(700_000_000)
    for at in range(0, 128_970, 1000):
        made.read(at, 1000, 3)
    made.end_epoch(2)
    make_trace(tmp_path / "a.trace", made.tables, targets=ONE, clock=made.clock).close()
    told = tracer(*VERB, "--json").json["reads"]
    assert any(one["two-lists_pages_low"] < one["two-lists_pages_high"] for one in told)
    assert "most" not in [row[0] for row in cells(tracer(*VERB).out)]


def test_json_has_the_range_and_the_pages_by_clock(tracer, tmp_path):
    make_scanned(tmp_path / "a.trace", scanner=PEER)
    told = tracer(*VERB, "--shared", "--json").json
    quarter = told["reading_s"] / 4
    expected = pytest.approx([0, quarter, 2 * quarter, 3 * quarter])
    assert told["clocks_s"][:-1] == expected and told["clocks_s"][-1] is None
    for one in (*told["reads"], *told["sums"]):
        by_clock = one["two-lists_pages_by_clock"]
        assert one["two-lists_pages"] == by_clock[0] and len(by_clock) == 5
        assert one["two-lists_pages_low"] == min(by_clock)
        assert one["two-lists_pages_high"] == max(by_clock)
    ranges = [(one["two-lists_pages_low"], one["two-lists_pages_high"]) for one in told["sums"]]
    assert ranges == [(1030, 1060), (1030, 1030)]
    assert told["error"] == told["error_low"] == told["error_high"] == {"job": 0, "peer": 0}


@pytest.mark.parametrize("scanner", [JOB, PEER])
def test_the_page_shows_a_range_in_brackets(tracer, tmp_path, scanner):
    make_scanned(tmp_path / "a.trace", scanner=scanner)
    shared = ["--shared"] if scanner == PEER else []
    page = tracer(*VERB, *shared, "--html", "-").out
    assert page.count("0 [0, 0.1172]") == 1  # an epoch of the job
    assert page.count("4.023 [4.023, 4.141]") == len(shared)
    assert "In brackets, and as bars: the range of the kernel" in page
    page = tracer(*VERB[:3], "8M", *shared, "--html", "-").out
    assert "In brackets" not in page and "0 [0" not in page
