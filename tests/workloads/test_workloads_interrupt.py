"""Ctrl-C waits for the end of a step, and is never lost."""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest

from tracer.cli.main import terminable
from tracer.workloads import sessions
from tracer.workloads.interrupt import Interruptible, held


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_ctrl_c_waits_for_the_check():
    done = []
    with pytest.raises(KeyboardInterrupt), Interruptible() as interruptible:
        interruptible.check()
        press_ctrl_c()
        done.append("the step")
        interruptible.check()
        done.append("another step")
    assert done == ["the step"]


def test_the_second_ctrl_c_does_not_wait():
    done = []
    with pytest.raises(KeyboardInterrupt), Interruptible():
        press_ctrl_c()
        press_ctrl_c()
        done.append("the step")
    assert done == []


def test_a_ctrl_c_after_the_last_check_is_not_lost():
    with pytest.raises(KeyboardInterrupt), Interruptible():
        press_ctrl_c()


def test_ctrl_c_takes_precedence_over_the_error_of_a_worker():
    with pytest.raises(KeyboardInterrupt), Interruptible():
        press_ctrl_c()
        raise RuntimeError("a worker died")


def test_the_previous_handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    with Interruptible():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_that_ignores_ctrl_c_still_ignores_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruptible() as interruptible:
            press_ctrl_c()
            interruptible.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_can_train_without_a_signal_handler():
    passed = []

    def work() -> None:
        with Interruptible() as interruptible:
            interruptible.check()
        passed.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert passed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_a_held_section_is_done(number):
    done = []
    with pytest.raises(KeyboardInterrupt), terminable(), held():
        signal.raise_signal(number)
        signal.raise_signal(number)
        done.append("begun")
    assert done == ["begun"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_with_its_default_action_is_not_held():
    before = signal.getsignal(signal.SIGTERM)
    with held():
        assert signal.getsignal(signal.SIGTERM) is before is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_process_started_during_a_signal_is_ended(number, monkeypatch):
    begun = []

    class Popen(subprocess.Popen):
        """A process whose start is followed by a signal before the caller knows its pid."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            begun.append(self)
            signal.raise_signal(number)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(KeyboardInterrupt), terminable(), sessions.started(["sleep", "1000"]):
        pytest.fail("the block was entered")
    (process,) = begun
    assert process.returncode == -signal.SIGTERM


def test_a_session_ended_by_an_error_is_no_longer_noted(tmp_path):
    note = tmp_path / "sessions"
    with pytest.raises(RuntimeError), sessions.started(["sleep", "1000"], note) as running:
        assert str(running.process.pid) in note.read_text()
        raise RuntimeError("the study")
    assert not note.exists()
