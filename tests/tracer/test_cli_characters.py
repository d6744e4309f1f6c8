"""Names with characters that the locale or standard output cannot encode."""

import json
import os
import subprocess

import pytest

from tests.conftest import tracer_command
from tests.support.traces import make_trace
from tests.support.waiting_steps import JOB, PROCESSES, TARGETS, steps_of

NAME = "größe\u8bad\U0001f600"
ENCODINGS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    "utf-8": {"PYTHONIOENCODING": "utf-8", "PYTHONUTF8": "0"},
}
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Makes a trace of steps of processes with that name."""
    tables = steps_of([2, 2, 40])
    tables["processes"] = [row | {"comm": NAME} for row in PROCESSES]
    folder = tmp_path_factory.mktemp("names") / "t"
    make_trace(folder, tables, targets=[{**TARGETS[0], "name": NAME}]).close()
    return folder


def out(*words, environment, status=0):
    ran = subprocess.run(
        tracer_command(*words),
        capture_output=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert ran.returncode == status, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("words", [("report",), ("explain",)], ids=" ".join)
def test_a_name_that_the_output_cannot_encode_is_escaped(trace, encoding, words):
    verb, *options = words
    printed = out(verb, trace, *options, environment=ENCODINGS[encoding]).decode(encoding)
    escaped = {"latin-1": "größe\\u8bad\\ud83d\\ude00", "utf-8": NAME}[encoding]
    assert escaped in printed


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_escaped_names_in_json_are_the_same_names(trace, encoding):
    words = ("query", trace, f"SELECT DISTINCT comm FROM processes WHERE pid = {JOB}", "--json")
    printed = out(*words, environment=ENCODINGS[encoding]).decode(encoding)
    assert NAME in json.dumps(json.loads(printed), ensure_ascii=False)


def test_a_page_is_utf_8_in_every_locale(trace):
    page = out("explain", trace, "--html", "-", environment=ASCII).decode("utf-8")
    assert NAME in page
