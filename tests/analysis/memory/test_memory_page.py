"""The page of a prediction: its tiles and its tables."""

import html
import re

import pytest

from tests.support.page_events import PAGE, TWO, looped
from tests.support.traces import make_trace
from tracer.analysis.memory.answer import answer_memory
from tracer.analysis.page.memory import memory_page

OWN = 64 << 10


@pytest.fixture
def page(tmp_path):
    """Makes the page of a target that reads 256 pages in each epoch, and of one that reads 9."""
    made = looped(pages=256, epochs=3)
    made.read(0, 9, ino=99, tid=9)
    with make_trace(tmp_path / "t", made.tables, targets=TWO, clock=made.clock) as trace:
        found = answer_memory(trace, [512 << 10, 2 << 20], OWN, read_ahead=0)
    return html.unescape(memory_page("t", found))


def words(text):
    return " ".join(re.sub("<[^>]*>", " ", text).split())


def test_a_target_that_uses_no_page_twice_has_enough_with_any_memory(page):
    said = words(page[page.index("<header>") : page.index("</header>")])
    assert "any memory peer uses no page twice" in said
    assert f"{(256 * PAGE + OWN) / 2**20:.1f} MiB job reads no page twice (LRU)" in said


def test_the_tables_have_the_page_cache_of_each_memory(page):
    head, row = re.search(r"<thead>(.*?)</thead>.*?<tbody>\s*(<tr>.*?</tr>)", page, re.S).groups()
    names = [words(one) for one in re.findall(r"<th.*?</th>", head, re.S)]
    cells = [words(one) for one in re.findall(r"<td.*?</td>", row, re.S)]
    assert names[:2] == ["memory MiB", "cache MiB"]
    assert [float(one) for one in cells[:2]] == [0.5, 0.5 - OWN / 2**20]


def test_the_caption_of_a_figure_explains_later_epochs_once(page):
    said = words(page[page.index('id="target-0"') : page.index('id="target-1"')])
    assert "Later epochs. MiB" in said
    assert said.count("mean of the whole epochs after the first") == 1
    assert "Mean of the whole" not in said


def test_reads_outside_of_epochs_have_the_epoch_none_which_sorts_before_0(page):
    found = {}
    for number in (0, 1):
        table = page[page.index(f'id="target-{number}"') :]
        head, body = re.search(r"<thead>(.*?)</thead>.*?<tbody>(.*?)</tbody>", table, re.S).groups()
        at = [words(one) for one in re.findall(r"<th .*?</th>", head, re.S)].index("epoch")
        rows = [re.findall(r"<td.*?</td>", row) for row in body.split("</tr>") if "<td" in row]
        found[number] = {(words(row[at]), re.search(r'data-v="(.*?)"', row[at])[1]) for row in rows}
    assert found == {0: {("0", "0.0"), ("1", "1.0"), ("2", "2.0")}, 1: {("none", "-1.0")}}
