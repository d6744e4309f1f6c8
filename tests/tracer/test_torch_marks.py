"""Marks that PyTorch makes in scripts that survive exceptions or take batches out of order."""

import os
import subprocess
import sys

import pytest

from tests.support.phases import read_phases
from tests.support.scripts import MODEL, Job, ended
from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP

pytest.importorskip("torch", reason="PyTorch is not installed")

STEPS = 7

SCRIPTS = {}
"""Scripts that run in processes of their own, by name."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Phases and ends of SCRIPTS."""
    folder, marks = (tmp_path_factory.mktemp(name) for name in ("job", "marks"))
    environment = {**os.environ, "PYTHONPATH": str(STARTUP), MARKS_ENV: str(marks)}
    (program := folder / "started.py").write_text(STARTED)
    apart = {name: [sys.executable, str(program), name] for name in STARTS}
    command = Job(folder).command(folder, SCRIPTS, apart)
    subprocess.run(command, env=environment, check=True)
    assert not list(marks.glob("*.note"))
    return read_phases(marks), ended(folder)


@pytest.fixture
def marked(ran):
    """The phases of a script, and the words of each line that it prints."""

    def of_script(name, workers=False):
        rows, ends = ran
        assert ends[name].status == 0, ends[name].err
        theirs = {ends[known].pid for known in ends}
        mine = [row for row in rows if row["pid"] == ends[name].pid]
        if workers:
            mine += [row for row in rows if row["pid"] not in theirs]
        return mine, [line.split() for line in ends[name].out.splitlines()]

    return of_script


def of(rows, name):
    return [row for row in rows if row["name"] == name]


STARTS = ("spawn", "forkserver")
STARTED = f"""{MODEL}
class Data(torch.utils.data.Dataset):
    def __len__(self): return 3
    def __getitem__(self, n): return os.getpid(), time.monotonic_ns(), n
if __name__ == "__main__":
    used = 0
    again = DataLoader(
        Data(), None, num_workers=1, multiprocessing_context=sys.argv[1],
        persistent_workers=sys.argv[1] == "spawn")
    for epoch in range(2):
        torch.manual_seed(0)
        for batch in again:
            learn(*data[:8])
            print(epoch, used, *batch)
            used += 1
"""
"""A program whose workers are started without a fork of its process."""


RAISES = {
    "optimizer": "optimizer.step(lambda: 1 / 0)",
    "hook": "optimizer.register_step_pre_hook(lambda *_: 1 / 0); optimizer.step()",
    "forward": "model(torch.zeros(3))",
    "backward": "model(x).sum().detach().backward()",
    "checkpoint": "torch.save(model, '/none/such')",
    "model_load": "torch.load('/none/such')",
}

for name, raises in RAISES.items():
    SCRIPTS[name] = f"""
for number, (x, y) in enumerate(loader({STEPS})):
    learn(x, y)
    if number == 2:
        try: {raises}
        except Exception: optimizer._optimizer_step_pre_hooks.clear()
        else: sys.exit("no exception")
"""


@pytest.mark.parametrize("raises", RAISES)
def test_a_script_goes_on_after_an_exception_and_so_do_its_steps(marked, raises):
    rows, _ = marked(raises)
    counts = {name: len(of(rows, name)) for name in ("train", "epoch", "step", "fetch")}
    assert counts == {"train": 1, "epoch": 1, "step": STEPS, "fetch": STEPS}
    assert [row for row in rows if row["end"] is None] == []
    for row in of(rows, "optimizer"):
        (step,) = [one for one in of(rows, "step") if one["step"] == row["step"]]
        assert step["start"] < row["start"] < row["end"] < step["end"]
    assert len(of(rows, "optimizer")) == STEPS + (raises in ("optimizer", "hook"))


SCRIPTS["nested"] = f"""
class Outer(torch.optim.Optimizer):
    def __init__(self): super().__init__(model.parameters(), {{}})
    def step(self, closure=None):
        try: optimizer.step(closure)
        except ZeroDivisionError: optimizer.step()
outer = Outer()
for x, y in loader({STEPS}):
    criterion(model(x), y).backward()
    outer.step(lambda: 1 / 0)
"""


def test_an_exception_in_an_optimizer_inside_another_ends_each_of_them_once(marked):
    rows, _ = marked("nested")
    steps = of(rows, "step")
    assert len(steps) == STEPS
    assert [row for row in rows if row["end"] is None] == []
    found = [(row["step"], row["start"], row["end"]) for row in of(rows, "optimizer")]
    assert len(found) == 3 * STEPS
    for step in range(STEPS):
        outer, failed, inner = (times for number, *times in found if number == step)
        assert outer[0] < failed[0] < failed[1] < inner[0] < inner[1] < outer[1]


OUT_OF_ORDER = f"""
import multiprocessing
class Data(torch.utils.data.Dataset):
    # The first batch is made after three others.
    def __init__(self): self.go_on = multiprocessing.Event()
    def __len__(self): return {STEPS}
    def __getitem__(self, n):
        if n == 0: self.go_on.wait()
        return os.getpid(), time.monotonic_ns(), n
rows = Data()
data = DataLoader(rows, batch_size=None, num_workers=2, in_order=False)
"""
UNEQUAL = """
class Data(torch.utils.data.IterableDataset):
    # The first worker has two batches, the other one five.
    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        for n in range(2 + 3 * worker): yield os.getpid(), time.monotonic_ns(), n
data = DataLoader(Data(), batch_size=None, num_workers=2)
"""
FAILING = f"""
class Data(torch.utils.data.Dataset):
    def __len__(self): return {STEPS + 1}
    def __getitem__(self, n):
        if n == 2: raise KeyError(n)
        return os.getpid(), time.monotonic_ns(), n
data = DataLoader(Data(), batch_size=None, num_workers=2)
"""
USES = """
x, y = next(iter(DataLoader(TensorDataset(torch.randn(8, 1, 28, 28), torch.zeros(8).long()), 8)))
batches, step = iter(data), 0
while True:
    try: batch = next(batches)
    except StopIteration: break
    except KeyError: continue
    learn(x, y)
    print(step, *batch)
    step += 1
    if step == 3 and hasattr(data.dataset, "go_on"): data.dataset.go_on.set()
"""


WORKERS = {"out of order": OUT_OF_ORDER, "unequal": UNEQUAL, "failing": FAILING}
SCRIPTS.update({name: data + USES for name, data in WORKERS.items()})


@pytest.mark.parametrize("data", WORKERS)
def test_a_worker_s_fetch_has_the_number_of_the_step_that_uses_it(marked, data):
    rows, used = marked(data, workers=True)
    assert len(used) == STEPS
    made = []
    for step, pid, at, _ in (map(int, words) for words in used):
        around = [
            row["step"] for row in of(rows, "fetch")
            if row["pid"] == pid and row["start"] <= at <= row["end"]
        ]  # fmt: skip
        made += [(step, *around)]
    assert made == [(step, step) for step in range(STEPS)]
    assert data != "out of order" or int(used[0][-1]) != 0


@pytest.mark.parametrize("start", STARTS)
def test_a_worker_that_is_started_without_a_fork_has_its_job_s_numbers(marked, start):
    rows, used = marked(start, workers=True)
    assert len(used) == 6
    for epoch, step, pid, at, _ in (map(int, words) for words in used):
        (found,) = [
            (row["epoch"], row["step"]) for row in of(rows, "fetch")
            if row["pid"] == pid and row["start"] <= at <= row["end"]
        ]  # fmt: skip
        assert found == (epoch, step)


SCRIPTS["in hooks"] = f"""
# As on a GPU, where PyTorch calls the hooks on a thread of its own.
from concurrent.futures import ThreadPoolExecutor
other = ThreadPoolExecutor(1)
for weights in model.parameters():
    own = torch.optim.SGD([weights])
    weights.register_post_accumulate_grad_hook(lambda _, own=own: other.submit(own.step).result())
for x, y in loader({STEPS}): criterion(model(x), y).backward()
"""


def test_an_optimizer_for_each_weight_in_the_backward_makes_no_training_of_its_own(marked):
    rows, _ = marked("in hooks")
    assert len({row["tid"] for row in rows}) == 1
    counts = {name: len(of(rows, name)) for name in ("train", "step", "backward", "optimizer")}
    assert counts == {"train": 1, "step": STEPS, "backward": STEPS, "optimizer": 0}
