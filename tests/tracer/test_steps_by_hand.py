"""Steps and evaluations of loops without a DataLoader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.drawn_trainings import Line
from tests.support.phases import read_phases


def begins_and_ends(folder: Path, name: str) -> list[tuple[int, int]]:
    return [(row["start"], row["end"]) for row in read_phases(folder) if row["name"] == name]


@pytest.mark.parametrize("text", ["BO NN BO", "CBO NN CBO", "BO NNN BO"])
def test_forwards_without_gradients_before_a_step_are_one_evaluation(tmp_path, text):
    script = Line(text)
    script.write(tmp_path)
    first, last = text.index("N"), text.rindex("N")
    first, last = (len(text[:at].replace(" ", "")) for at in (first, last))
    ((start, end),) = begins_and_ends(tmp_path, "eval")
    one, two = begins_and_ends(tmp_path, "step")
    assert (one[1], start) == (script.begins[first],) * 2
    assert script.begins[last] < end <= two[0] == script.begins[last + 1]


def test_a_file_saved_after_a_step_by_hand_belongs_to_it(tmp_path):
    Line("CBO S CBO S").write(tmp_path)
    saved = [row["step"] for row in read_phases(tmp_path) if row["name"] == "checkpoint"]
    assert saved == [0, None]
