"""The page of an explanation in a real browser: the hover texts of its bars."""

import pytest

from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, MS, PROCESSES, TARGETS
from tracer.analysis.explain.explanation import explain
from tracer.analysis.explain.over_time import over_time
from tracer.analysis.explain.waiting import waiting_boxes
from tracer.analysis.page.explanation import explanation_page

WAITS_MS = {"read": 30, "futex": 10, "nanosleep": 5}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes the page of step 3:117, which waits in three calls, each 1 ms after the last."""
    tables = {
        "processes": PROCESSES, "python_stacks": [], "syscalls": [], "off_cpu": [], "phases": [],
    }  # fmt: skip
    of = {"pid": JOB, "tid": JOB}
    now = 100 * MS
    for call, ms in WAITS_MS.items():
        tables["syscalls"].append({"ts": now, "name": call, "dur_ns": ms * MS + 2, **of})
        tables["off_cpu"].append({"ts": now + 1, "dur_ns": ms * MS, "state": "S", **of})
        now += (ms + 1) * MS
    tables["phases"] = [
        {"name": "train", "start": 50 * MS, "end": now + MS, **of},
        {"name": "step", "start": 100 * MS, "end": now, "epoch": 3, "step": 117, **of},
    ]
    folder = tmp_path_factory.mktemp("page")
    with make_trace(folder / "t", tables, targets=TARGETS) as trace:
        found = explain(trace)
        page = explanation_page("t", found, over_time(trace), waiting_boxes(trace))
    (folder / "why.html").write_text(page)
    return folder / "why.html"


def hovers(page, section):
    """Returns the hover text of each bar of a section's figure."""
    return page.js(
        f"""(async () => {{
        const place = document.querySelector('#{section} .js-plotly-plot'), found = [];
        for (let curve = 0; curve < place.data.length; curve++)
          for (let bar = 0; bar < place._fullData[curve]._length; bar++) {{
            Plotly.Fx.hover(place, [{{curveNumber: curve, pointNumber: bar}}]);
            await new Promise(done => setTimeout(done, 200));
            found.push([...place.querySelectorAll('.hoverlayer text')]
              .map(one => one.textContent).join(' '));
          }}
        return found;
        }})()"""
    )


def test_hover_texts_tell_lengths_and_steps(made, tab):
    with tab() as page:
        page.open(made)
        assert hovers(page, "all") and all("step 3:117: " in said for said in hovers(page, "all"))
        boxes = hovers(page, "waiting")
        assert any("45 ms, 100 %" in said for said in boxes)
        for ms, share in ((30, 67), (10, 22), (5, 11)):
            assert any(f"{ms} ms, {share} %" in said for said in boxes), (ms, boxes)
        waits = [said for said in hovers(page, "step-0") if "runs" not in said]
        lengths = sorted(float(said.split(": ")[1].split(" ms")[0]) for said in waits)
        assert lengths == sorted(WAITS_MS.values())
        assert page.console == [] and page.asked == []


def test_a_long_name_of_a_target_makes_no_page_wider_than_the_screen(tab, tmp_path):
    """The heading of a step names its target if there are several."""
    names = {JOB: "m" * 200, JOB + 1: "n" * 200}
    of_both = [{"pid": pid, "name": name, "role": "target"} for pid, name in names.items()]
    threads = [
        {"pid": pid, "tid": pid, "role": "target", "target": name} for pid, name in names.items()
    ]
    tables = {"processes": threads, "syscalls": [], "off_cpu": [], "phases": []}
    for thread in threads:
        of = {"pid": thread["pid"], "tid": thread["tid"], "start": MS, "end": 9 * MS}
        step = {**of, "name": "step", "epoch": 0, "step": 0}
        tables["phases"] += [{**of, "name": "train"}, step]
    targets = [{**one, "kind": "pid"} for one in of_both]
    with make_trace(tmp_path / "t", tables, targets=targets) as trace:
        html = explanation_page("t", explain(trace), over_time(trace), waiting_boxes(trace))
    (tmp_path / "why.html").write_text(html)
    with tab() as page:
        page.size(400)
        page.open(tmp_path / "why.html")
        heads = page.js("[...document.querySelectorAll('h2')].map(one => one.textContent)")
        assert any("mmm" in head for head in heads) and any("nnn" in head for head in heads)
        assert page.js("document.documentElement.scrollWidth") <= 400
