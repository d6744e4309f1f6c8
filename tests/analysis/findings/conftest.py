"""The findings of a trace that a test writes out."""

import json

import pytest

from tests.support.findings import S
from tests.support.traces import make_trace
from tracer.analysis.cli.query import query as query_verb
from tracer.analysis.findings.catalogue import ALWAYS, TRIVIAL, findings


@pytest.fixture
def found(tmp_path):
    """The findings of a trace of these tables, by topic; each query gives its value again."""
    made = []

    def make(tables, **manifest):
        manifest.setdefault("clock", {"name": "mono", "start_ns": 0, "end_ns": 200 * S})
        folder = tmp_path / f"{len(made)}.trace"
        made.append(folder)
        with make_trace(folder, tables, **manifest) as trace:
            listed = findings(trace)
        assert [one.weight for one in listed] == sorted((o.weight for o in listed), reverse=True)
        for one in listed:
            assert one.weight >= TRIVIAL or one.topic in ALWAYS, one
            assert 0 <= one.weight <= 1 and one.sentence.isprintable(), one
        return {one.topic: one for one in listed}

    make.folders = made
    return make


@pytest.fixture
def query_again(found, capsys):
    """Asserts that `tracer query` gives the values of findings of the last trace again."""

    def check(*listed):
        for one in listed:
            capsys.readouterr()
            query_verb(str(found.folders[-1]), one.query, json=True, csv=False)
            (first, *_) = json.loads(capsys.readouterr().out)[0].values()
            assert first == pytest.approx(one.value), one

    return check
