"""Names, titles and numbers of figures can be read on wide and on narrow screens."""

from contextlib import ExitStack

import pandas as pd
import pytest

from tests.support.figure_pages import CUT, write_figures
from tracer.analysis.figures.blame import blame
from tracer.analysis.figures.critical_path import threads_of_step
from tracer.analysis.figures.prashanthi2022 import epoch_bars, epoch_violins

LABELS = """[...document.querySelectorAll('.ytick text')]
  .map(one => [one.getBoundingClientRect().top, one.textContent])
  .sort(([a], [b]) => a - b).map(([, name]) => name.replaceAll(" ", ""))"""
"""Names of rows, downwards, without spaces."""
UNDER = """(() => {
  const title = document.querySelector('.g-xtitle').getBoundingClientRect();
  return [...document.querySelectorAll('.xtick text')].filter(
    one => one.getBoundingClientRect().bottom > title.top + 5).length; })()"""
"""The number of names that the title covers; their boxes end some pixels below the letters."""
CELLS = "[...document.querySelectorAll('.heatmap-label text')].map(one => one.textContent)"
SETTINGS = [f"dataset cifar10, cache kept, medium sd-card-{n}" for n in range(3)]


@pytest.fixture
def shown(tab, tmp_path):
    """Opens a page of figures with a width, and yields it."""
    with ExitStack() as stack:

        def show(width, *figures):
            page = stack.enter_context(tab())
            page.size(width)
            page.open(write_figures(tmp_path, *figures))
            assert page.console == []
            return page

        yield show


def waits(name, blamed, targets=("job",)):
    rows = [
        (target, "lock", "process", f"{name}-{n}", 30.0 - n, None)
        for target in targets
        for n in range(blamed)
    ]
    columns = ["target", "kind", "whose", "blamed", "total_s", "path_s"]
    return blame(pd.DataFrame(rows, columns=columns).astype({"path_s": "Float64"}))


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", ["p", "a-process-with-a-long-name"])
def test_names_below_the_heat_map_of_blame_are_whole_and_above_its_title(shown, width, name):
    page = shown(width, waits(name, 13))
    assert len(page.js("[...document.querySelectorAll('.xtick text')].map(() => 1)")) == 13
    assert page.js(CUT) == [] and page.js(UNDER) == 0


@pytest.mark.parametrize("targets", [("job",), ("job", "peer", "third")])
def test_cells_have_their_percentage_if_it_fits(shown, targets):
    for width, blamed, texts in ((1200, 12, 12), (400, 12, 0), (400, 2, 2)):
        page = shown(width, waits("p", blamed, targets))
        assert len([said for said in page.js(CELLS) if said]) == texts * len(targets)


def epochs():
    times = dict.fromkeys(("stall_s", "compute_s", "overhead_s"), 1.0)
    whole = dict.fromkeys(("epoch_s", "epoch_s_low", "epoch_s_high"), 3.0)
    rows = [{"model": "resnet18", "settings": name, "workers": n, **times, **whole}
            for n in (0, 14) for name in SETTINGS]  # fmt: skip
    return epoch_bars(pd.DataFrame(rows), "workers", "workers")


def violins():
    rows = [{"model": "resnet18", "settings": name, "of_mean_percent": percent}
            for name in SETTINGS for percent in (90.0, 110.0)]  # fmt: skip
    return epoch_violins(pd.DataFrame(rows))


@pytest.mark.parametrize("draw", [epochs, violins])
def test_a_narrow_page_folds_the_names_of_rows_and_cuts_none(shown, draw):
    wide = shown(1200, draw()).js(LABELS)
    page = shown(400, draw())
    narrow = page.js(LABELS)
    assert page.js(CUT) == []
    assert narrow == wide and len(set(wide)) == len(wide) > 2
    assert page.js("document.querySelectorAll('.ytick text tspan.line').length") == 2 * len(wide)


def test_a_narrow_page_folds_the_title_of_an_axis(shown):
    bars = {"from_ms": [0.0], "ms": [9.0], "kind": ["run"], "said": ["x"],
            "thread": ["a thread with a long name 123456"]}  # fmt: skip
    page = shown(400, threads_of_step(pd.DataFrame(bars), 9.0))
    assert page.js(CUT) == []
    title = "document.querySelectorAll('.g-xtitle tspan.line').length"
    assert page.js(title) == 2
    assert shown(1200, threads_of_step(pd.DataFrame(bars), 9.0)).js(title) == 0
