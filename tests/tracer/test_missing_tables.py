"""Tables that a trace lacks are named together, with a mend that can be done."""

import pytest

from tests.support.pages import Page, raw_trace
from tests.support.traces import make_trace
from tracer.probes.catalogue import SETS
from tracer.probes.errors import BadTrace
from tracer.store.trace import Trace

PAGES = "ts_ns,dev,page,pages,op\n1,8:0,5,2,W\n2,8:0,5,1,W\n"


def test_an_imported_trace_lacks_all_at_once_and_not_for_want_of_an_option(tracer, tmp_path):
    (tmp_path / "in.csv").write_text(PAGES)
    tracer("import", "in.csv", "-o", "x.trace", "--format", "csv")
    assert tracer("explain", "x.trace", status=6).err == (
        "tracer: x.trace has no tables processes, off_cpu, phases: the imported file lacks them; "
        "record the job itself: tracer record -e default,sched ...\n"
    )
    assert tracer("query", "x.trace", "SELECT count(*) FROM off_cpu", status=6).err == (
        "tracer: x.trace has no table off_cpu: the imported file lacks it; "
        "record the job itself: tracer record -e default,sched ...\n"
    )


@pytest.mark.parametrize(
    ("names", "mend"),
    [
        (("off_cpu",), "record it: tracer record -e default,sched ..."),
        (("off_cpu", "writeback", "samples"), "tracer record -e default,sched --sample-hz ..."),
        (("dirty", "writeback"), "record them: tracer record -e dirty,writeback ..."),
        (("gpu_calls",), "record it: tracer record -e default ..."),
        (("gpu_calls", "writeback"), "record them: tracer record -e default ..."),
        (("extent_map",), "see what it is made from: tracer query --columns extent_map"),
    ],
)
def test_one_mend_for_all_tables(tmp_path, names, mend):
    raw_trace(tmp_path / "t", {0: [Page(0)]})
    with Trace(tmp_path / "t") as trace, pytest.raises(BadTrace) as refused:
        trace.require(*names)
    assert refused.value.mend.endswith(mend)
    assert all(name in refused.value.what for name in names)


def test_events_that_the_kernel_only_counted_are_to_be_recorded_without_summary(tmp_path):
    with make_trace(tmp_path / "t", {"summaries": []}) as trace, pytest.raises(BadTrace) as refused:
        trace.require("block")
    assert str(refused.value).endswith(
        "t has no table block: the kernel only counted events (--summary); "
        "record it without --summary: tracer record -e block ..."
    )


@pytest.mark.parametrize(
    ("probes", "missing", "told"),
    [
        (("block",), {}, "t has no table gpu_calls; record it: tracer record -e default ..."),
        (
            SETS["default"],
            {},
            "t has no table gpu_calls: libcuda.so.1 of NVIDIA's driver was not found as the"
            " recording began; install NVIDIA's driver, or tell the dynamic linker where it is"
            " (LD_LIBRARY_PATH, ldconfig)",
        ),
        (
            ("block",),
            {"gpu_calls": ["no target ran its library as the recording began"]},
            "t has no table gpu_calls: no target ran its library as the recording began; install"
            " NVIDIA's driver, or tell the dynamic linker where it is (LD_LIBRARY_PATH, ldconfig)",
        ),
    ],
)
def test_waits_for_a_gpu_are_missing_for_want_of_the_driver_or_of_the_probe(
    tracer, tmp_path, probes, missing, told
):
    named = [name for name in probes if name != "gpu_calls"]
    make_trace(tmp_path / "t", {}, probes=named, capture={"missing": missing}).close()
    assert tracer("query", "t", "FROM gpu_waits", status=6).err == f"tracer: {told}\n"
