"""A reader waits for the guardian of a killed recorder, and for no process that is none."""

import os

import pytest

from tests.support.pages import Page, raw_trace
from tracer.probes.errors import UsageError
from tracer.probes.kernel import boot_id, process_start_time
from tracer.store.files import hold
from tracer.store.trace import Trace


def _of_a_killed_recorder(guardian):
    gone = {"pid": 1, "start_time": 0, "boot_id": boot_id()}
    return {**gone, "guardian": (guardian, process_start_time(guardian))}


def test_a_process_that_is_no_guardian_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.store.makers._GUARDIAN_S", 0.1)
    recorder = _of_a_killed_recorder(os.getpid())
    raw_trace(tmp_path / "t", {0: [Page(0)]}, recorder=recorder)
    Trace(tmp_path / "t").close()


def test_a_guardian_that_holds_the_trace_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.store.makers._GUARDIAN_S", 0.1)
    recorder = _of_a_killed_recorder(os.getpid())
    raw_trace(tmp_path / "t", {0: [Page(0)]}, recorder=recorder)
    folder = os.open(tmp_path / "t", os.O_RDONLY)
    try:
        hold(folder)
        with pytest.raises(UsageError, match="is still saving its data"):
            Trace(tmp_path / "t")
    finally:
        os.close(folder)
    Trace(tmp_path / "t").close()
