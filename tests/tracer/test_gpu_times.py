"""GPU time of phases, from CUDA events of a simulated GPU."""

import pytest

from tests.support.phases import read_phases, read_spans
from tracer.phases import marks
from tracer.phases.automatic.cuda import SYNCHRONIZE_ENV, GpuTimes

US = 1_000


class FakeEvent:
    """Happens when the GPU has worked off what was called before it."""

    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.device = self.gpu.device
        self.at = max(self.gpu.now, self.gpu.busy_until)
        self.gpu.busy_until = self.at

    def query(self):
        return self.at <= self.gpu.now

    def elapsed_time(self, other):
        if self.device != other.device:
            raise ValueError("events of two devices")
        return (other.at - self.at) / 1e6


class FakeGpu:
    """torch.cuda, of a GPU whose clock the test moves on."""

    def __init__(self):
        self.now = self.busy_until = self.synchronized = self.device = 0
        self.initialized, self.capturing, self.fails = True, False, False
        self.cuda = self
        self.made = 0

    def is_initialized(self):
        return self.initialized

    def is_current_stream_capturing(self):
        return self.capturing

    def Event(self, enable_timing):  # noqa: N802
        assert enable_timing
        if self.fails:
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.made += 1
        return FakeEvent(self)

    def synchronize(self):
        assert not self.capturing
        self.synchronized += 1
        self.now = max(self.now, self.busy_until)

    def work(self, ns):
        """Calls that keep it busy for `ns`; they return at once."""
        self.busy_until = max(self.now, self.busy_until) + ns


@pytest.fixture
def gpu():
    return FakeGpu()


@pytest.fixture
def folder(tmp_path):
    marks.enable(str(tmp_path))
    yield tmp_path
    marks.disable()


def call(times, name, during):
    """Calls as PyTorch does with our hooks around a call."""
    from tracer.phases.automatic import torch_marks

    times.begin(name)
    torch_marks._begin(name, step=1)
    during()
    times.end(name)
    torch_marks._end(name)


def measured(folder):
    script, automatic = read_spans(folder)
    assert not script
    return [(span.name, span.gpu_ns) for span in automatic]


def test_the_gpu_is_read_when_it_has_come_so_far_and_never_waited_for(gpu, folder):
    times = GpuTimes(gpu)
    for step in range(1, 4):
        call(times, b"forward", lambda: gpu.work(300 * US))
        call(times, b"backward", lambda n=step: gpu.work(n * 700 * US))
        gpu.now += 3_000 * US
    call(times, b"optimizer", lambda: gpu.work(90 * US))
    assert gpu.synchronized == 0
    assert measured(folder) == [
        ("forward", 300 * US), ("backward", 700 * US),
        ("forward", 300 * US), ("backward", 1400 * US),
        ("forward", 300 * US), ("backward", 2100 * US),
        ("optimizer", None),  # which the GPU has not got to
    ]  # fmt: skip


def test_events_are_used_again(gpu, folder):
    times = GpuTimes(gpu)
    for _ in range(100):
        call(times, b"forward", lambda: gpu.work(1))
        gpu.now += 10
    assert gpu.made <= 4


def test_a_gpu_that_never_answers_costs_no_memory(gpu, folder):
    times = GpuTimes(gpu)
    gpu.work(1 << 60)
    for _ in range(2000):
        call(times, b"forward", lambda: None)
    assert gpu.made == 2000
    assert {took for _, took in measured(folder)} == {None}


def test_each_boundary_waits_as_in_the_papers(gpu, folder, monkeypatch):
    monkeypatch.setenv(SYNCHRONIZE_ENV, "1")
    times = GpuTimes(gpu)
    seen = []
    call(times, b"forward", lambda: gpu.work(300 * US))
    seen.append(gpu.now)
    call(times, b"backward", lambda: gpu.work(500 * US))
    seen.append(gpu.now)
    assert seen == [300 * US, 800 * US]
    assert gpu.synchronized == 4


def test_a_capture_of_a_graph_is_left_alone(gpu, folder, monkeypatch):
    monkeypatch.setenv(SYNCHRONIZE_ENV, "1")
    times = GpuTimes(gpu)
    gpu.capturing = True
    call(times, b"forward", lambda: None)
    gpu.capturing = False
    call(times, b"forward", lambda: setattr(gpu, "capturing", True))  # begins within
    gpu.capturing = False
    call(times, b"backward", lambda: gpu.work(US))
    gpu.now += 2 * US
    call(times, b"optimizer", lambda: None)
    assert measured(folder) == [
        ("forward", None), ("forward", None), ("backward", US), ("optimizer", None),
    ]  # fmt: skip


def test_two_devices_have_no_time_between_them(gpu, folder):
    times = GpuTimes(gpu)
    call(times, b"forward", lambda: setattr(gpu, "device", 1))
    call(times, b"backward", lambda: gpu.work(US))
    gpu.now += 2 * US
    call(times, b"optimizer", lambda: None)
    assert measured(folder) == [("forward", None), ("backward", US), ("optimizer", None)]


def test_without_cuda_or_with_a_broken_one_there_is_no_time_and_no_error(gpu, folder):
    gpu.initialized = False
    times = GpuTimes(gpu)
    call(times, b"forward", lambda: None)
    assert gpu.made == 0
    gpu.initialized = gpu.fails = True
    call(times, b"forward", lambda: None)
    gpu.fails = False
    call(times, b"forward", lambda: gpu.work(US))
    gpu.now += 2 * US
    call(times, b"forward", lambda: None)
    assert {took for _, took in measured(folder)} == {None}


def test_forwards_that_are_one_add_up(gpu, folder):
    times = GpuTimes(gpu)
    for _ in range(3):
        call(times, b"forward", lambda: gpu.work(10 * US))
    call(times, b"backward", lambda: gpu.work(20 * US))
    gpu.now += 100 * US
    call(times, b"optimizer", lambda: None)
    found = {row["name"]: row["gpu_ns"] for row in read_phases(folder)}
    assert (found["forward"], found["backward"]) == (30 * US, 20 * US)


def test_a_scripts_own_phase_has_the_time_of_what_it_called(gpu, folder):
    times = GpuTimes(gpu)
    with marks.phase("forward"):
        for _ in range(2):
            call(times, b"forward", lambda: gpu.work(10 * US))
    gpu.now += 100 * US
    call(times, b"backward", lambda: None)
    script, _ = read_spans(folder)
    assert [(span.name, span.gpu_ns) for span in script] == [("forward", 20 * US)]


def test_made_up_times_are_not_believed(folder):
    from tracer.phases.format import AUTOMATIC, MEASURED

    marks.begin("forward")
    for at, took in ((0, 5), (1 << 62, 5), (marks._now(), -5), (marks._now(), 1 << 62)):
        marks.mark(MEASURED | AUTOMATIC, b"forward", at, took)
        marks.mark(MEASURED, b"\xff" * 30, at, took)
    marks.end("forward")
    script, automatic = read_spans(folder)
    assert [span.gpu_ns for span in script] == [None]
    assert automatic == []
