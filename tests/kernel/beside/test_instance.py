"""An instance of ours: whose events it holds, and by which filter."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tracer.probes.backends.ftrace.instance import Instance

RENAMED = "task:task_rename"


@pytest.fixture(params=["machine", "target"])
def instance(request):
    name = Path("/proc/thread-self/comm").read_text()
    made = Instance(request.param)
    made.stop()
    made.enable_event(RENAMED)
    yield made
    made.close()
    rename(name)


def rename(name: str) -> None:
    Path("/proc/thread-self/comm").write_text(name)


def rename_another(name: str) -> None:
    thread = threading.Thread(target=rename, args=(name,))
    thread.start()
    thread.join()


def test_the_recorders_own_threads_are_left_out(instance):
    instance.start()
    rename("seen")
    instance.leave_out([1, os.getpid()])
    rename("unseen")
    rename_another("another")
    text = instance.read("trace")
    assert "newcomm=seen" in text
    assert "newcomm=another" in text
    assert "newcomm=unseen" not in text


def test_more_than_a_filter_of_events_has_room_for_are_left_out(instance):
    instance.leave_out([*range(100_000, 100_500), os.getpid()])
    instance.start()
    rename("unseen")
    rename_another("another")
    text = instance.read("trace")
    assert "newcomm=another" in text
    assert "newcomm=unseen" not in text


def test_switches_of_threads_cost_nothing_if_events_are_rare(instance):
    instance.leave_out([os.getpid()])
    filters = (
        instance.read("set_event_notrace_pid"),
        instance.read("events/task/task_rename/filter"),
    )
    found = [str(os.getpid()) in text for text in filters]
    assert found == [instance.name.endswith("-target"), instance.name.endswith("-machine")]
