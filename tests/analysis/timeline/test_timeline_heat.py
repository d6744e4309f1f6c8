"""Write-backs by place and file and time: rows by rank, cells that hold every page."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.traces import make_trace
from tracer.analysis.timeline.axis import Axis
from tracer.analysis.timeline.heat import files, places, table_of

pytestmark = pytest.mark.slow

MS, S = 10**6, 10**9
TENTHS = Axis(0, S - 1, S // 10)
"""A second in ten bins."""


def made(folder, **tables):
    return make_trace(folder / "t", tables)


def writes(*told):
    """Write bios: ms, sector, pages, and device."""
    return [
        {"ts": ms * MS, "event": "bio_queue", "dev": dev, "sector": sector, "tid": 5,
         "nr_sector": 8 * pages, "rwbs": "W"}
        for ms, sector, pages, dev in told
    ]  # fmt: skip


def test_pages_are_rows_in_the_order_in_which_they_lie(tmp_path):
    rows = writes((50, 0, 2, "8:0"), (150, 8, 1, "8:0"), (150, (1 << 64) - 8, 1, "8:0"),
                  (250, 80, 1, "7:1"))  # fmt: skip
    with made(tmp_path, block=rows) as trace:
        lane = places(trace, TENTHS)
    columns = ["dev", "first_page", "last_page", "row", "from_s", "pages"]
    assert lane.frame[columns].to_numpy().tolist() == [
        ["7:1", 10, 10, 0, pytest.approx(0.2), 1],
        ["8:0", 0, 0, 1, 0.0, 1],
        ["8:0", 1, 1, 2, 0.0, 1],
        ["8:0", 1, 1, 2, 0.1, 1],
        ["8:0", (1 << 61) - 1, (1 << 61) - 1, 3, 0.1, 1],
    ]
    assert "4 KiB" in lane.note


@settings(max_examples=20, deadline=None)
@given(
    told=st.lists(
        st.tuples(st.integers(0, 999), st.integers(0, 1 << 61), st.integers(1, 5000)),
        min_size=1,
        max_size=60,
    ),
    rows=st.sampled_from([1, 2, 7, 400]),
)
def test_cells_are_few_and_hold_every_page(tmp_path_factory, told, rows):
    bios = writes(*((ms, 8 * min(page, (1 << 61) - 5000), n, "8:0") for ms, page, n in told))
    bios.sort(key=lambda row: row["ts"])
    with made(tmp_path_factory.mktemp("cells"), block=bios) as trace:
        lane = places(trace, TENTHS, rows)
        asked = trace.sql(lane.query)
    frame = lane.frame
    assert frame["row"].max() < rows
    assert frame["pages"].sum() == sum(pages for _, _, pages in told)
    assert queried(asked, lane) == cells(lane)


def cells(lane):
    frame = lane.frame[["dev", "first_page", "from_s", "pages"]]
    return {(dev, first, round(10 * s)): n for dev, first, s, n in frame.itertuples(index=False)}


def queried(asked, lane):
    """The same cells, by the answer to the lane's query."""
    size = int(lane.frame["last_page"].iloc[0]) - int(lane.frame["first_page"].iloc[0]) + 1
    rows = asked[["dev", "piece", "bin", "pages"]].itertuples(index=False)
    return {(dev, int(piece) * size, n): pages for dev, piece, n, pages in rows}


def test_the_query_gives_the_cells_that_are_drawn(tmp_path, tracer):
    rows = writes((50, 0, 512, "8:0"), (51, 0, 512, "8:0"), (150, 8 * 300, 300, "8:0"),
                  (150, 8 * 300, 300, "7:1"), (250, 80_000, 64, None),
                  (350, 0, (1 << 17) + 5, "7:1"), (2000, 0, 9, "8:0"))  # fmt: skip
    with made(tmp_path, block=rows) as trace:
        lane = places(trace, TENTHS, 40)
    asked = pd.DataFrame(tracer("query", tmp_path / "t", lane.query, "--json").json)
    assert queried(asked, lane) == cells(lane)
    assert sum(cells(lane).values()) == 2 * 512 + 600 + 64 + (1 << 17)
    assert len({first for dev, first, _ in cells(lane) if dev == "7:1"}) > 20


def test_only_the_begin_of_an_impossibly_long_write_is_drawn(tmp_path):
    rows = writes((50, 0, 1 << 45, "8:0"))
    with made(tmp_path, block=rows) as trace:
        lane = places(trace, TENTHS)
    assert lane.frame["pages"].sum() == 1 << 17
    assert "longer than 512 MiB" in lane.note


def test_files_have_a_table_of_their_pages(tmp_path):
    inode = {"tid": 5, "dev": "8:0", "event": "start"}
    inodes = [{"ts": n * MS, "ino": 100 + n, **inode} for n in range(40)]
    rows = writes(*((n, 800 * n, 50 - n, "8:0") for n in range(40)))
    with made(tmp_path, block=rows, inode_writeback=inodes) as trace:
        lane = files(trace, TENTHS)
    assert lane.frame["row"].max() == 24
    table = table_of(lane)
    assert table["file"].iloc[0] == "inode 100 of 8:0"
    assert table["file"].iloc[-1] == "all other files"
    assert table["pages"].sum() == sum(50 - n for n in range(40))
    assert table["share"].sum() == pytest.approx(1)
