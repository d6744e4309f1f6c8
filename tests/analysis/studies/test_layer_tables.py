"""Figure 6 of Park & Bahn 2023: by page identity, by the writes that count, by checkpoint habit."""

import pandas as pd
import pytest

from tests.analysis.studies.test_paper_tables import row, run
from tracer.analysis.studies.papers import park2023_layer

MIB = 256
"""Pages in a MiB."""


def curve(of, steps, written, writes="all", identity="file", fell_back=0):
    """Rows of one run's curve: (MiB, saved without the drain, saved with it), the last of all."""
    distinct = steps[-1][0] * MIB
    return [
        {
            **of, "identity": identity, "writes": writes, "written": written * MIB,
            "distinct": distinct, "fell_back": fell_back, "capacity_pages": mib * MIB,
            "capacity_share": mib * MIB / distinct, "improvement": saved,
            "improvement_with_drain": drained,
        }
        for mib, saved, drained in steps
    ]  # fmt: skip


def rewritten(of, more=1, **told):
    """A checkpoint of 10 MiB, written ten times."""
    steps = [(0, 0.0, 0.0), (5 * more, 0.05, 0.0), (10 * more, 1.0, 0.9)]
    return curve(of, steps, 100 * more, **told)


def once(of, **told):
    """The same without any page written twice."""
    return curve(of, [(0, 0.0, 0.0), (84, 0.84, 0.0), (100, 1.0, 0.0)], 100, **told)


def table(rows):
    return park2023_layer.layer_improvement(pd.DataFrame(rows))


def test_the_improvement_has_its_bound_and_the_capacity_it_needs():
    rows = []
    for repeat in (0, 1):  # the second writes twice as much
        of = run("1", repeat, checkpoint_bytes=(8 << 20) * (repeat + 1), checkpoints=10)
        rows += rewritten(of, repeat + 1)
        rows += rewritten(of, repeat + 1, writes="files", fell_back=3 * repeat)
    found = table(rows)
    one = row(found, where="one container", model="alexnet", identity="file", writes="all")
    assert (one["improvement"], one["improvement_at_full"]) == (0.9, 1.0)
    assert one["bound"] == pytest.approx(0.9)
    assert (one["written"], one["distinct"]) == (150 * MIB, 15 * MIB)
    # 0.84 takes 10 MiB in the one repeat and 20 in the other, of checkpoints of 8 and 16.
    assert (one["needed_mib"], one["needed_of_checkpoint"]) == (15, 1.25)
    assert (one["note"], one["paper_improvement"], one["runs"]) == (None, 0.84, 2)
    assert row(found, model="alexnet", writes="files")["fell_back"] == 1.5
    assert pd.isna(row(found, where="4 containers", model="lstm")["improvement"])


def test_no_capacity_is_given_if_no_page_was_written_twice():
    found = table(once(run("1", 0)))
    one = row(found, where="one container", model="alexnet")
    assert (one["improvement"], one["bound"], one["improvement_at_full"]) == (0, 0, 1)
    assert pd.isna(one["needed_mib"]) and pd.isna(one["needed_of_checkpoint"])
    assert one["note"] == "no page was written twice"
    found = table(once(run("1", 0)) + rewritten(run("1", 1)))
    one = row(found, where="one container", model="alexnet")
    assert (one["note"], one["needed_mib"]) == ("no page was written twice in 1 of 2 runs", 10)


def test_a_number_beyond_the_bound_is_reached_only_by_pages_left_in_the_layer():
    # 99 of 100 MiB are distinct: all but tautological.
    steps = [(0, 0.0, 0.0), (84, 0.85, 0.0), (99, 1.0, 0.01)]
    one = row(table(curve(run("1", 0), steps, 100)), where="one container", model="alexnet")
    assert one["note"] == "only pages left in the layer reach the paper's number"
    assert (one["needed_mib"], one["bound"]) == (84, pytest.approx(0.01))


def test_a_checkpoint_that_no_job_told_of_is_not_known():
    for of in (run("1", 0), run("1", 0, checkpoint_bytes=None), run("1", 0, checkpoint_bytes=0)):
        one = row(table(rewritten(of)), where="one container", model="alexnet")
        assert one["needed_mib"] == 10
        assert pd.isna(one["needed_of_checkpoint"])


def test_the_curves_are_those_of_all_writes_in_the_first_repeat():
    rows = rewritten(run("1", 1)) + rewritten(run("1", 2)) + once(run("1", 1), writes="files")
    found = park2023_layer.layer_curves(pd.DataFrame(rows))
    assert found["capacity_share"].tolist() == [0, 0.5, 1]
    assert found["paper_improvement"].unique().tolist() == [0.84]
    usual = [{**one, "workers": 4} for one in rows + once(run("1", 3))]
    other = once(run("1", 0, workers=0)) + rewritten(run("1", 1, workers=0))
    assert park2023_layer.layer_curves(pd.DataFrame([*other, *usual])).equals(found)


def habit(where="1", repeat=0, model="alexnet", checkpoints=10, **told):
    of = run(where, repeat, model, checkpoints=checkpoints, **told)
    return {**of, "id": f"{of['id']} {sorted(told.items())}"}


def test_habits_stand_side_by_side_and_only_the_usual_one_beside_the_paper():
    rows = rewritten(habit(checkpoint_every=None, checkpoint_way=None))
    rows += rewritten(habit(repeat=1, checkpoint_every="epoch", checkpoint_way="truncate"))
    rows += once(habit(checkpoint_way="new"))
    rows += once(habit(checkpoint_every="end", checkpoints=1))
    rows += rewritten(habit(checkpoint_every="10", checkpoint_way="rename", checkpoints=31))
    rows += rewritten(habit("host"))  # one habit alone
    rows += once(habit(checkpoint_way="overwrite", cpus=0.5))  # limited
    found = park2023_layer.layer_habits(pd.DataFrame(rows))
    told = found.set_index("habit")[["checkpoints", "improvement", "runs"]].T.to_dict("list")
    assert told == {
        "each epoch, truncated and written again": [10, 0.9, 2],
        "each epoch, under a new name": [10, 0, 1],
        "at the end, truncated and written again": [1, 0, 1],
        "every 10 steps, renamed over the old one": [31, 0.9, 1],
    }
    assert found["bound"].tolist() == pytest.approx([0, 0.9, 0.9, 1 - 1 / 31])
    assert set(found["where"]) == {"one container"} and set(found["paper_improvement"]) == {0.84}
    usual = row(table(rows), where="one container", model="alexnet")
    assert (usual["improvement"], usual["runs"]) == (0.9, 2)


def test_checkpoints_that_no_job_told_of_have_no_bound():
    rows = rewritten(run(checkpoint_way="new")) + rewritten(run(repeat=1))
    found = park2023_layer.layer_habits(pd.DataFrame(rows))
    assert found["bound"].isna().all() and len(found) == 2
    assert park2023_layer.layer_habits(pd.DataFrame(rewritten(run()))).empty
