"""The heat map of blame: shares of each target's waits, on the critical path if there is one."""

import pandas as pd
import pytest

from tracer.analysis.figures.blame import MOST_BLAMED, OTHERS, blame, blame_shares

COLUMNS = ["target", "kind", "whose", "blamed", "total_s", "path_s"]


def table(*rows):
    return pd.DataFrame(rows, columns=COLUMNS).astype({"path_s": "Float64"})


def cells(figure):
    (heat,) = figure.data
    return {
        (figure.layout.yaxis.ticktext[row], figure.layout.xaxis.ticktext[n]): heat.z[row][n]
        for row in heat.y
        for n in heat.x
        if heat.z[row][n] > 0
    }


def test_kinds_of_one_cause_are_one_cell_and_the_cells_of_a_target_add_up():
    figure = blame(
        table(
            ("job", "lock", "itself", None, 1.0, None),
            ("job", "ipc", "itself", None, 2.0, None),
            ("job", "disk", "device", "8:0", 1.0, None),
            ("peer", "cpu", "target", "job", 0.5, None),
        )
    )
    assert cells(figure) == {
        ("job", "itself"): 0.75, ("job", "device 8:0"): 0.25, ("peer", "target job"): 1.0,
    }  # fmt: skip
    assert "threads' waits" in figure.layout.xaxis.title.text


def test_waits_on_the_critical_path_count_if_there_are_any():
    figure = blame(
        table(
            ("job", "lock", "itself", None, 90.0, 0.0),
            ("job", "disk", "device", "8:0", 2.0, 1.5),
            ("job", "sync", "kernel", "jbd2/vda-8", 1.0, 0.5),
        )
    )
    assert cells(figure) == {("job", "device 8:0"): 0.75, ("job", "kernel jbd2/vda-8"): 0.25}
    assert "steps' waits" in figure.layout.xaxis.title.text


def test_the_rest_has_one_column():
    rows = [("job", "lock", "process", f"p{n:02}", 30.0 - n, None) for n in range(30)]
    shares = blame_shares(table(*rows).assign(s=lambda frame: frame["total_s"]))
    assert list(shares.columns) == [*(f"process p{n:02}" for n in range(MOST_BLAMED)), OTHERS]
    assert shares.loc["job"].sum() == pytest.approx(1)
    assert shares.loc["job", OTHERS] == pytest.approx(
        sum(30 - n for n in range(MOST_BLAMED, 30)) / sum(30 - n for n in range(30))
    )


def test_one_to_whom_no_time_is_charged_has_no_column():
    rows = [("job", "lock", "process", f"p{n:02}", 1.0, 0.0) for n in range(30)]
    rows += [("job", "lock", "itself", None, 1.0, 1.0), ("peer", "disk", "device", "8:0", 1.0, 2.0)]
    shares = blame_shares(table(*rows).assign(s=lambda frame: frame["path_s"]))
    assert list(shares.columns) == ["device 8:0", "itself"]
    assert list(shares.index) == ["peer", "job"]
    assert shares.to_numpy().tolist() == [[1, 0], [0, 1]]


def test_nothing_is_drawn_if_nobody_waited():
    assert blame(table()) is None
    assert blame(table(("job", "lock", "itself", None, 0.0, 0.0))) is None


def test_names_are_no_markup():
    figure = blame(table((None, "lock", "process", "<a href=x>" + "y" * 99, 1.0, None)))
    ((who, by),) = cells(figure)
    assert who == "all"
    assert by.startswith("process &lt;a href=x&gt;yyy") and by.endswith("…")


def test_names_that_are_equal_where_they_are_cut_have_cells_of_their_own():
    names = [f"trainer-of-the-language-models-{which}" for which in ("alpha", "beta")]
    rows = [("job", "lock", "target", name, 3.0 - n, None) for n, name in enumerate(names)]
    figure = blame(table(*rows))
    (heat,) = figure.data
    assert list(heat.x) == list(figure.layout.xaxis.tickvals) == [0, 1]
    assert len(set(figure.layout.xaxis.ticktext)) == 1
    assert [name for name, _ in heat.customdata[0]] == [f"target {name}" for name in names]
    assert [seconds for _, seconds in heat.customdata[0]] == [3.0, 2.0]
    assert "%{customdata[0]}: %{customdata[1]" in heat.hovertemplate
