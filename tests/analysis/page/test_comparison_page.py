"""The page of a comparison: what is in it, what names of an enemy do not do, how it is written."""

import json
import os
import re
import stat

import pytest

from tests.support import drawn_pages
from tests.support.compared import lossy, make_repeats
from tests.support.page_policy import check_policy
from tests.support.recordings import EVIL
from tests.support.traces import make_trace
from tracer.analysis.compare.comparison import compare
from tracer.analysis.compare.verdicts import MISSING, NOISE, UNTOLD
from tracer.analysis.page.comparison import comparison_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """Runs of a base, of one that is half as fast again, and of one like the base."""
    return make_repeats(tmp_path_factory.mktemp("repeats"))


@pytest.fixture(scope="module")
def found():
    """All of such runs compared."""
    return drawn_pages.compared()


@pytest.fixture(scope="module")
def html():
    """The page of that."""
    return drawn_pages.comparison()


def without_plotly(html):
    return html[: html.index("<script>/**")]


def said(html):
    return " ".join(re.sub("<[^>]*>", " ", without_plotly(html)).split())


def panel(html, name):
    begin = html.index(f'<section role="tabpanel" id="{name}"')
    following = html.find('<section role="tabpanel"', begin + 1)
    return html[begin:following] if following > 0 else html[begin:]


def figures(html):
    return [
        json.loads(one)
        for one in re.findall(r'<script type="application/json">(.*?)</script>', html, re.S)
    ]


def test_the_page_says_what_is_compared_and_how_clear_it_is(html, found):
    text = said(html)
    changed = (found.rows["verdict"] == "changed").sum()
    for fact in (
        "slow, same against base", "Traces 15 in 3 groups", f"Changed {changed} of {found.tests}",
        "base 5 traces, the base", "slow 5 traces", "Benjamini and Hochberg",
    ):  # fmt: skip
        assert fact in text, fact
    assert 'class="warning"' not in html


def test_changes_come_first_and_noise_has_its_own_section(html):
    changed = panel(html, "changed")
    first = changed.index("<tbody>")
    (ratio, low, high) = re.search(
        r">slow<.*?>([\d.]+) \[([\d.]+), ([\d.]+)\]<", changed[first:], re.S
    ).groups()
    assert 1.4 < float(low) < float(ratio) == pytest.approx(1.5, rel=0.05)
    assert float(ratio) < float(high) < 1.65
    assert "train: end to end" not in panel(html, "noise")
    assert ">time in read<" in panel(html, "noise") and ">time in read<" not in changed


def test_a_measure_that_changed_has_all_groups_beside_it(html):
    rows = re.findall(r"<tr>.*?</tr>", panel(html, "changed"), re.S)
    groups = [re.findall(">(slow|same)<", row)[0] for row in rows if "train: end to end<" in row]
    assert groups == ["slow", "same"]


def test_ratios_are_drawn_with_their_intervals_and_noise_is_hollow(html):
    changed, noise = figures(html)
    slow, same = changed["data"]
    assert (slow["name"], same["name"]) == ("slow", "same")
    number = next(i for i, told in enumerate(slow["hovertext"]) if "train: end to end" in told)
    assert "1.5" in slow["hovertext"][number] and slow["marker"]["symbol"][number] == "circle"
    assert min(slow["error_x"]["array"]) > 0 and min(slow["error_x"]["arrayminus"]) > 0
    assert set(same["marker"]["symbol"]) == {"square-open"}
    assert {one for drawn in noise["data"] for one in drawn["marker"]["symbol"]} <= {
        "circle-open", "square-open",
    }  # fmt: skip


def test_losses_are_said_where_they_touch(repeats):
    runs = [*repeats["base"], *repeats["slow"]]
    marked = lossy(runs[-1])
    html = comparison_page(compare([*runs[:-1], marked]))
    assert "With losses 1 of 10 traces" in said(html)
    assert "Events were lost: counts of the marked groups" in said(html)
    assert {drawn["name"] for one in figures(html) for drawn in one["data"]} == {
        "slow (events lost)"
    }
    assert ">events lost<" in panel(html, "changed")
    assert panel(html, "traces").count(">7 events lost<") == 1


def test_too_few_runs_show_no_change(repeats):
    found = compare([repeats["base"][0], repeats["slow"][0]])
    html = comparison_page(found)
    assert "Nothing could be tested" in said(html)
    assert 'id="part-not-told"' in html and 'id="part-changed"' not in html
    assert "there are too few runs" in said(html)
    shown = re.findall(r"<tr>.*?</tr>", panel(html, "changed"), re.S)[1:]
    order = found.rows.loc[found.rows["verdict"] == UNTOLD]
    assert (order["score"].diff().dropna() <= 0).all() and len(shown) == len(order)
    assert "Ranked by the share of the job" in panel(html, "changed")
    assert "largest first" not in panel(html, "changed")


def test_a_measure_without_a_ratio_says_why(tmp_path, repeats):
    with make_trace(tmp_path / "b.trace", {"syscalls": []}) as trace:
        found = compare([repeats["base"][0], trace.folder])
    missing = panel(comparison_page(found), "missing")
    assert "not in b: a trace has no table phases" in missing
    assert set(found.rows["verdict"]) >= {MISSING} and NOISE not in set(found.rows["verdict"])


def test_bytes_are_shown_in_mib(tmp_path):
    folders = []
    for name, used in (("a", 3 << 20), ("b", 6 << 20)):
        rows = [{"ts": t, "name": "memory_used", "value": used, "unit": "bytes"} for t in (1, 2)]
        with make_trace(tmp_path / f"{name}.trace", {"samples": rows}) as trace:
            folders.append(trace.folder)
    (row,) = re.findall(
        r"<tr>(?:(?!</tr>).)*most memory of the machine.*?</tr>",
        comparison_page(compare(folders)),
        re.S,
    )
    assert [">MiB<" in row, ">3<" in row, ">6<" in row] == [True] * 3


def test_the_page_needs_and_allows_nothing_else(html):
    check_policy(html)


def test_names_of_an_enemy_are_only_ever_text():
    html = drawn_pages.hostile_comparison()
    body = without_plotly(html)
    assert "<img" not in body and "alert(1)</script" not in body
    assert body.count("<script") == body.count('<script type="application/json">') > 0
    for character in "\x1b\u202e":
        assert character not in body
    assert EVIL not in json.dumps(figures(html), ensure_ascii=False)


def test_the_verb_writes_a_page_whole_or_not_at_all(tracer, repeats, tmp_path):
    paths = [*repeats["base"][:2], *repeats["slow"][:2]]
    ran = tracer("compare", *paths, "--html", "c.html")
    page = tmp_path / "c.html"
    assert ran.out == "" and "c.html: " in ran.err and "MiB" in ran.err
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    ran = tracer("compare", *paths, "--html", "c.html", status=2)
    assert "c.html exists" in ran.err and "--force" in ran.err
    page.write_text("old")
    ran = tracer("compare", *paths, "--html", "c.html", "--force", "--json")
    assert [group["name"] for group in json.loads(ran.out)["groups"]] == ["base", "slow"]
    assert page.stat().st_size > 1 << 20
    ran = tracer("compare", *paths, "--html", "no/c.html", status=2)
    assert "there is no folder" in ran.err and ran.err.count("\n") == 1
    assert "stdout" in tracer("compare", *paths, "--html", "-", "--json", status=2).err
    assert sorted(os.listdir(tmp_path)) == ["c.html"]


def test_measures_that_a_figure_leaves_out_are_counted(tmp_path):
    paths = [tmp_path / name for name in ("base", "slow")]
    for number, path in enumerate(paths, 1):
        calls = [
            {"ts": n * 10**6, "pid": 7, "tid": 7, "name": f"call{n:02}", "dur_ns": number * 10**5}
            for n in range(53)
        ]
        make_trace(path, {"syscalls": calls}).close()
    found = compare([], {"base": [paths[0]], "slow": [paths[1]]})
    page = comparison_page(found)
    known = found.rows[found.rows["ratio"] > 0].drop_duplicates(["topic", "measure"])
    [measures] = re.findall(
        r"The figure has the first 40 of (\d+) measures with a ratio above 0\.", page
    )
    assert int(measures) == len(known) > 40
    assert [len(one["layout"]["yaxis"]["ticktext"]) for one in figures(page)] == [40]
