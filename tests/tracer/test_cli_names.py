"""Names of traces that stand for none, or for something else than the verb takes."""

import pytest

from tests.conftest import ROOT
from tests.support.pages import Page, raw_trace

FIXTURE = ROOT / "fixtures" / "lenet.trace"
VERBS = [
    ("info", ""),
    ("report", ""),
    ("report", FIXTURE, ""),
    ("explain", ""),
    ("predict", "", "--memory", "1G"),
    ("simulate", ""),
    ("compare", "", ""),
    ("compare", "--group", "a=", "--group", "b=t"),
    ("query", "", "SELECT 1"),
    ("export", "", "-o", "out"),
    ("pack", "", "-o", "out"),
    ("unpack", "", "-o", "out"),
    ("import", "", "-o", "out"),
    ("study", "report", ""),
    ("study", "report", "t", "-o", ""),
    ("study", "run", "quick", "-o", ""),
    ("report", FIXTURE, "--html", ""),
    ("report", FIXTURE, "--baseload", ""),
    ("explain", FIXTURE, "--html", ""),
    ("predict", FIXTURE, "--memory", "1G", "--html", ""),
    ("simulate", FIXTURE, "--html", ""),
    ("simulate", FIXTURE, "--config", ""),
    ("simulate", FIXTURE, "--devices", ""),
    ("compare", FIXTURE, FIXTURE, "--html", ""),
    ("calibrate", "", "--name", "a", "--kind", "disk"),
    ("calibrate", "a", "--name", "a", "--kind", "disk", "-o", ""),
    ("export", FIXTURE, "-o", ""),
    ("pack", "t", "-o", ""),
    ("unpack", "t", "-o", ""),
    ("import", "t", "-o", ""),
    ("record", "-o", "", "--", "true"),
    ("workload", "run", "lenet", "-o", ""),
    ("workload", "run", "lenet", "--data", ""),
    ("workload", "run", "lenet", "--checkpoint", ""),
    ("workload", "run", "lenet", "--record", ""),
]


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(map(str, words))[-20:])
def test_an_empty_name_does_not_stand_for_the_current_folder(tracer, tmp_path, words):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    ended = tracer(*words, status=2)
    assert ended.out == "" and ended.err.count("\n") == 1
    assert "empty name" in ended.err or "is not a group" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_pack_is_not_packed_again_but_unpacked(tracer, tmp_path):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    tracer("pack", "t", "-o", "t.tar.zst")
    assert tracer("pack", "t.tar.zst", "-o", "u.tar.zst", status=2).err == (
        "tracer: t.tar.zst is a pack already; unpack it with: tracer unpack t.tar.zst\n"
    )
    assert not (tmp_path / "u.tar.zst").exists()
    help = " ".join(tracer("pack", "--help").out.split())
    assert "Trace directory." in help and "or a pack" not in help


def test_a_pack_that_is_not_there_is_told_with_the_verb_that_makes_packs(tracer):
    assert tracer("unpack", "none.tar.zst", status=6).err == (
        "tracer: there is no file none.tar.zst; check its name; tracer pack makes packs of traces\n"
    )


WRITTEN = [
    ("record", "-o", "-", "--", "true"),
    ("unpack", "t.tar.zst", "-o", "-"),
    ("import", "t", "-o", "-"),
    ("pack", "t", "-o", "-"),
    ("export", FIXTURE, "-o", "-"),
    ("export", FIXTURE, "--format", "csv", "-o", "-"),
    ("study", "run", "none", "-o", "-"),
    ("study", "report", "t", "-o", "-"),
    ("workload", "run", "none", "-o", "-"),
    ("workload", "run", "none", "--data", "-"),
    ("workload", "run", "none", "--record", "-"),
]


@pytest.mark.parametrize("words", WRITTEN, ids=lambda words: " ".join(map(str, words))[-20:])
def test_standard_output_is_no_name_of_a_trace_a_folder_or_a_binary_file(tracer, tmp_path, words):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    ended = tracer(*words, status=2)
    assert ended.out == "" and ended.err.startswith("tracer: - stands for standard output, and ")
    assert ended.err.endswith("; give its name (./- if that is the name)\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_path_may_be_named_like_standard_output(tracer, tmp_path):
    tracer("pack", FIXTURE, "-o", "./-")
    tracer("unpack", "./-", "-o", "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["-", "t"]
