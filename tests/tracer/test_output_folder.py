"""The folder of a recording, which others may rename while it is recorded."""

import pytest

from tracer.session.output import Output


@pytest.fixture
def made(tmp_path):
    output = Output(tmp_path / "x.trace")
    yield output
    output.close()


def test_a_folder_that_stays_has_the_name_that_the_user_gave(made, tmp_path, monkeypatch):
    assert made.found() == tmp_path / "x.trace"
    monkeypatch.chdir(tmp_path)
    made.path = made.path.relative_to(tmp_path)
    assert str(made.found()) == "x.trace"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_renamed_folder_is_found_by_its_new_name(made, tmp_path, replaced):
    made.path.rename(tmp_path / "y.trace")
    if replaced:
        made.path.mkdir()
    assert made.found() == tmp_path / "y.trace"


def test_a_recording_names_the_folder_that_was_renamed_meanwhile(tracer, tmp_path):
    """The command of the recording renames its folder."""
    ran = tracer(
        *("record", "--backend", "none", "-o", tmp_path / "x.trace"),
        *("--", "mv", tmp_path / "x.trace", tmp_path / "y.trace"),
    )
    assert f"tracer report {tmp_path}/y.trace" in ran.err
    assert "complete" in tracer("info", tmp_path / "y.trace").out
