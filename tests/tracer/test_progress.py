"""The line that opens a recording."""

from tracer.cli.progress import RecordingProgress
from tracer.targets import Target


def test_a_baseload_says_what_is_sampled(capsys):
    with RecordingProgress() as progress:
        progress.started([])
    assert capsys.readouterr().err == "Sampling the idle machine... Ctrl-C to end.\n"


def test_a_recording_names_its_targets(capsys):
    with RecordingProgress() as progress:
        progress.started([Target("train", "pid", 23)])
    assert capsys.readouterr().err == "Tracing train (23)... Ctrl-C to end.\n"
