"""The page of a what-if: it needs nothing but itself, and names in it do no harm."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.support.traces import make_trace
from tracer.analysis.figures import what_if as draw
from tracer.analysis.page.what_if import answer_page, sweep_page

pytestmark = pytest.mark.slow

FIXTURE = ROOT / "fixtures" / "lenet.trace"


@pytest.mark.parametrize("model", ["paper", "curve", "timed"])
def test_each_model_has_its_page(tracer, tmp_path, model):
    tracer("simulate", FIXTURE, "--model", model, "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"model {model}" in page
    assert "Assumptions" in page
    assert "<script src" not in page
    facts = tracer("simulate", FIXTURE, "--model", model, "--json").json
    assert f"{facts['requests']:,}" in page
    if model == "timed":
        assert ">p99.9" in page and "p99 9" not in page


def test_a_page_is_not_overwritten_without_force(tracer, tmp_path):
    (tmp_path / "page.html").write_text("mine")
    ended = tracer("simulate", FIXTURE, "--html", "page.html", status=2)
    assert "page.html exists" in ended.err
    assert (tmp_path / "page.html").read_text() == "mine"
    tracer("simulate", FIXTURE, "--html", "page.html", "--force")
    assert "flush layer" in (tmp_path / "page.html").read_text()


def test_a_sweep_has_its_page_its_table_and_its_json(tracer, tmp_path):
    (tmp_path / "s.toml").write_text('capacity = [0.1, 1.0]\npolicy = ["lru", "min"]\n')
    rows = tracer("simulate", FIXTURE, "--config", "s.toml", "--json").json["rows"]
    assert len(rows) == 4
    assert "4 simulations" in tracer("simulate", FIXTURE, "--config", "s.toml").out
    tracer("simulate", FIXTURE, "--config", "s.toml", "--html", "s.html")
    assert "Every simulation" in (tmp_path / "s.html").read_text()


def test_a_sweep_on_workers_and_of_two_traces_is_the_same(tracer, tmp_path, workers):
    (tmp_path / "s.toml").write_text('capacity = [0.1, 1.0]\npolicy = ["lru", "min", "sieve"]\n')
    here = tracer("simulate", FIXTURE, "--config", "s.toml", "--json").json["rows"]
    two = ("simulate", FIXTURE, FIXTURE, "--config", "s.toml", "--json")
    there = tracer(*two, "--scheduler", workers).json["rows"]
    assert [{k: v for k, v in row.items() if k != "trace"} for row in there] == here * 2
    one = ("simulate", FIXTURE, "--config", "s.toml", "--json", "--scheduler", workers)
    assert tracer(*one).json["rows"] == here


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--config", "none.toml"), "cannot read none.toml"),
        ((FIXTURE,), "only one trace can be simulated without --config"),
        (("--identity", "name"), "no identity 'name'"),
        (("--model", "curve", "--wanted", "1.5"), "improvement of 1.5"),
        (("--destage", "never"), "no destage policy 'never'"),
        (("--devices", "none.toml"), "none.toml"),
    ],
)
def test_impossible_arguments_are_refused_in_one_line(tracer, arguments, said):
    ended = tracer("simulate", FIXTURE, *arguments, status=2)
    assert said in ended.err
    assert ended.err.count("\n") == 1


HARM = "</script><script>alert(1)</script>"


def test_names_are_escaped_in_pages():
    frame = pd.DataFrame(
        {
            "trace": [HARM, "b"],
            "capacity_bytes": [4096, 8192],
            "improvement": [0.1, 0.2],
            "improvement_with_drain": [0.0, 0.1],
        }
    )
    page = sweep_page(HARM, frame)
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_each_size_of_a_sweep_has_a_column_of_its_own():
    pages = [1, 3150, 3155, 256 * 1024, 256 * 1025, 256 * 1028]
    shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    sizes = [4096 * n for n in pages]
    (heat,) = draw.sweep_heat(
        pd.DataFrame({"capacity_bytes": sizes, "improvement": shares}), "improvement", ""
    ).data
    assert heat.z.tolist() == [shares]
    assert len({*heat.x}) == len(pages)
    named = [min(pages, key=lambda n: abs(n / 256 - float(label))) for label in heat.x]
    assert named == pages
    assert list(heat.x[3:]) == ["1024", "1025", "1028"]


def test_sizes_of_two_traces_that_differ_little_are_two_columns():
    frame = pd.DataFrame(
        {"trace": ["a", "b"], "capacity_bytes": [4096 * 3150, 4096 * 3155],
         "improvement": [0.5, 0.6]}
    )  # fmt: skip
    (heat,) = draw.sweep_heat(frame, "improvement", "").data
    assert list(heat.x) == ["12.3", "12.32"]
    assert [[value if value == value else None for value in row] for row in heat.z.tolist()] == [
        [0.5, None], [None, 0.6],
    ]  # fmt: skip


def test_a_trace_without_write_backs_has_a_page_that_says_so():
    facts = {
        "model": "curve", "policy": "lru", "buffer": "write-only", "medium": "m", "disk": "d",
        "identity": "block", "requests": 0, "unique_pages": 0, "by_reason": {}, "exact": True,
        "every_size": True,
        "curve": [{"capacity_pages": 0, "capacity_bytes": 0, "improvement": float("nan"),
                   "improvement_with_drain": float("nan")}],
        "needed": [{"improvement": 0.8, "capacity_bytes": None}], "most": None,
        "most_with_drain": None, "assumptions": [HARM],
        "writers": {"taken": "targets", "pages": 0, "left_out_share": 0.0},
    }  # fmt: skip
    page = answer_page("x", facts)
    assert "would have had nothing to do" in page
    assert "<script>alert(1)" not in page


@pytest.mark.parametrize("model", ["paper", "curve", "timed"])
def test_each_model_has_a_page_for_a_trace_without_write_backs(tracer, tmp_path, model):
    make_trace(tmp_path / "t", {"block": [], "dirty": [], "syscalls": []}).close()
    tracer("simulate", "t", "--model", model, "--html", "page.html")
    assert "would have had nothing to do" in (tmp_path / "page.html").read_text()


def test_figures_take_frames():
    curve = pd.DataFrame(
        {"series": ["a", "a"], "capacity_bytes": [0, 1 << 20], "improvement": [0.0, 0.5],
         "improvement_with_drain": [0.0, 0.2]}
    )  # fmt: skip
    drawn = json.loads(draw.by_capacity(curve, (0.82,)).to_json())
    assert [trace["name"] for trace in drawn["data"]] == [
        "a, without the final drain", "a, with the final drain"
    ]  # fmt: skip
    assert drawn["layout"]["annotations"][0]["text"] == "82%"
    heat = draw.sweep_heat(curve.assign(policy=["lru", "min"]), "improvement", "")
    assert list(heat.data[0].y) == ["lru", "min"]
    # Ticks between whole per cents differ.
    assert heat.data[0].colorbar.tickformat == ".3~%"
    assert not re.search("nan", draw.by_improvement(
        pd.DataFrame({"series": ["a"], "improvement": [0.8], "capacity_bytes": [None]})
    ).to_json())  # fmt: skip
