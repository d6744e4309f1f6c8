"""Scripts that know nothing of us, whose phases are there all the same; and that notice nothing."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from analysis.views.steps import steps
from tracer.phases import MARKS_ENV
from tracer.phases.automatic import STARTUP
from tracer.store.trace import Trace

pytest.importorskip("torch", reason="PyTorch is not installed")

EPOCHS = [3, 7, 5, 2, 6]
STEPS = sum(EPOCHS)

MODEL = """
import json, os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
model = nn.Sequential(
    nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(864, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=.01)
def loader(batches, workers=0):
    return DataLoader(Subset(data, range(batches * 8)), batch_size=8, num_workers=workers)
def learn(x, y):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
"""

TRAIN = f"""
for epoch, batches in enumerate({EPOCHS}):
    for x, y in loader(batches, workers=2):
        fetched = time.monotonic_ns()
        learn(x, y)
        print(epoch, fetched, time.monotonic_ns())
    torch.save(model.state_dict(), "model.pt")
"""


@pytest.fixture
def script(tmp_path):
    """A training script with a model, data and an optimizer; returns its command line."""

    def make(source, *arguments, name="train.py"):
        path = tmp_path / name
        path.write_text(MODEL + textwrap.dedent(source))
        return [sys.executable, str(path), *arguments]

    return make


@pytest.fixture
def recorded(tracer, tmp_path):
    """Record a command; returns the opened trace and what the command printed."""
    opened = []

    def run(command, *options, status=0):
        ran = tracer("record", "-o", "x.trace", "--force", "-e", "block", *options, "--", *command,
                     status=status)  # fmt: skip
        opened.append(Trace(tmp_path / "x.trace"))
        return opened[-1], ran.out

    yield run
    for trace in opened:
        trace.close()


def rows(trace, query):
    return trace.connection.execute(query).fetchall()


def counts(trace):
    return dict(rows(trace, "SELECT name, count(*) FROM phases GROUP BY ALL"))


def test_every_step_of_every_epoch_is_there_with_its_parts(recorded, script):
    trace, out = recorded(script(TRAIN))
    said = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert len(said) == STEPS
    expected = [(epoch, step) for step, (epoch, *_) in enumerate(said)]
    for name in ("step", "forward", "backward", "optimizer"):
        query = f"SELECT epoch, step FROM phases WHERE name = '{name}' ORDER BY start"
        assert rows(trace, query) == expected
    found = counts(trace)
    assert (found["train"], found["epoch"], found["checkpoint"]) == (1, 5, 5)
    assert rows(trace, "SELECT epoch FROM phases WHERE name = 'checkpoint' ORDER BY start") == [
        (epoch,) for epoch in range(5)
    ]


def test_workers_fetch_on_their_own_processes_for_the_steps_that_use_it(recorded, script):
    trace, _ = recorded(script(TRAIN))
    (main,) = rows(trace, "SELECT DISTINCT pid FROM phases WHERE name = 'optimizer'")
    query = "SELECT epoch, step FROM phases WHERE name = 'fetch' AND pid {} {} ORDER BY step"
    own = rows(trace, query.format("=", *main))
    theirs = rows(trace, query.format("!=", *main))
    assert len(own) == STEPS
    assert theirs == own
    workers = "SELECT count(DISTINCT pid) FROM phases WHERE name = 'fetch'"
    assert rows(trace, workers) == [(1 + 2 * len(EPOCHS),)]


def test_the_parts_of_a_step_add_up_to_what_the_script_measured(recorded, script):
    trace, out = recorded(script(TRAIN))
    steps(trace)
    found = rows(
        trace,
        'SELECT epoch, start, "end", total_ns, fetch_stall_ns, compute_ns,'
        " checkpoint_ns + overhead_ns, forward_ns + backward_ns + optimizer_ns,"
        " least(fetch_stall_ns, forward_ns, backward_ns, optimizer_ns, overhead_ns)"
        " FROM steps ORDER BY start",
    )
    said = [tuple(map(int, line.split())) for line in out.splitlines()]
    for row, (said_epoch, fetched, ended) in zip(found, said, strict=True):
        epoch, start, end, total, stall, compute, rest, parts, least = row
        assert epoch == said_epoch
        assert total == end - start == stall + compute + rest
        assert parts == compute
        assert least >= 0
        assert start + stall < fetched < fetched + compute < ended < end
    for (_, _, end, *_), (_, fetched, _) in zip(found, said[1:], strict=False):
        assert end < fetched


PLAYED_GPU = """
class Event:
    # On a GPU that takes half the CPU's time, and is done when it is asked again.
    def __init__(self, enable_timing): self.asked = False
    def record(self): self.at, self.asked = time.monotonic_ns() // 2, False
    def query(self):
        self.asked, before = True, self.asked
        return before
    def elapsed_time(self, other): return (other.at - self.at) / 1e6
waits = 0
def synchronize():
    global waits
    waits += 1
torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.Event, torch.cuda.synchronize = Event, synchronize
for x, y in loader(8): learn(x, y)
print(waits)
"""


@pytest.mark.parametrize("synchronous", [False, True])
def test_the_gpu_s_time_is_beside_the_cpu_s(recorded, script, synchronous):
    options = ["--cuda-sync"] if synchronous else []
    trace, out = recorded(script(PLAYED_GPU), *options)
    assert trace.manifest["cuda_sync"] is synchronous
    assert int(out) == (8 * 4 * 2 if synchronous else 0)  # the model, the loss
    query = (
        "SELECT name, count(*), bool_and(gpu_ns > 0) FROM phases WHERE step IS NOT NULL"
        " AND gpu_ns IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    # What was asked for once, at the end, was not done.
    assert rows(trace, query) == [
        ("backward", 8, True), ("forward", 8, True), ("optimizer", 7, True),
    ]  # fmt: skip
    query = f"SELECT count(gpu_forward_ns), count(gpu_optimizer_ns) FROM {steps(trace)}"
    assert rows(trace, query) == [(8, 7)]


def test_numbers_count_on_with_gradients_accumulated(recorded, script):
    trace, _ = recorded(
        script(
            """
            for x, y in loader(6):
                criterion(model(x), y).backward()
                if x is not None and model[0].weight.grad is not None:
                    seen = globals().get("seen", 0) + 1
                if seen % 2 == 0:
                    optimizer.step(); optimizer.zero_grad()
            """
        )
    )
    found = counts(trace)
    assert (found["step"], found["forward"], found["backward"], found["optimizer"]) == (6, 6, 6, 3)


def test_evaluation_is_told_from_training_and_inference(recorded, script):
    trace, _ = recorded(
        script(
            """
            for epoch in range(2):
                for x, y in loader(3): learn(x, y)
                model.eval()
                with torch.no_grad():
                    for x, y in loader(5): model(x)
                model.train()
            """
        )
    )
    found = counts(trace)
    assert (found["step"], found["forward"], found["epoch"], found["eval"]) == (6, 6, 2, 2)
    assert "inference" not in found
    trace, _ = recorded(
        script(
            """
            model.load_state_dict(model.state_dict())
            model.eval()
            with torch.inference_mode():
                for x, y in loader(5): model(x)
            """
        )
    )
    found = counts(trace)
    assert (found["inference"], found["step"], found["forward"], found["model_load"]) == (
        1,
        5,
        5,
        1,
    )
    assert "train" not in found


def test_a_compiled_model_mixed_precision_and_two_models(recorded, script):
    trace, _ = recorded(
        script(
            """
            compiled = torch.compile(model, backend="aot_eager")
            scaler = torch.amp.GradScaler("cpu")
            head = nn.Linear(10, 10)
            for x, y in loader(4):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = criterion(head(compiled(x)), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            """
        )
    )
    found = counts(trace)
    assert [found[n] for n in ("step", "forward", "backward", "optimizer")] == [4, 4, 4, 4]


def test_a_late_import_of_pytorch_in_a_child(recorded, script, tmp_path):
    train = script("for x, y in loader(3): learn(x, y)")
    parent = tmp_path / "parent.py"
    parent.write_text(f"import subprocess\nsubprocess.run({train!r}, check=True)")
    trace, _ = recorded([sys.executable, str(parent)])
    assert counts(trace)["optimizer"] == 3


def test_both_ranks_of_torchrun(recorded, script):
    command = script(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
        for x, y in loader(3): learn(x, y)
        dist.barrier()
        os._exit(0)  # gloo may abort at an orderly end, with or without us
        """
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    trace, _ = recorded([*run, command[1]])
    query = "SELECT count(*) FROM phases WHERE name = '{}' GROUP BY pid"
    for name in ("step", "forward", "backward", "optimizer"):
        assert rows(trace, query.format(name)) == [(3,), (3,)]


def test_persistent_workers_are_set_to_work_anew(recorded, script):
    trace, _ = recorded(
        script(
            """
            again = DataLoader(data, batch_size=16, num_workers=1, persistent_workers=True)
            for epoch in range(3):
                for x, y in again: learn(x, y)
            """
        )
    )
    (main,) = rows(trace, "SELECT DISTINCT pid FROM phases WHERE name = 'optimizer'")
    expected = [(step // 4, step) for step in range(12)]
    for sign in ("=", "!="):
        query = f"SELECT epoch, step FROM phases WHERE name = 'fetch' AND pid {sign} {main[0]}"
        assert rows(trace, f"{query} ORDER BY step") == expected


def test_what_a_script_marks_itself_is_said_once(recorded, script):
    trace, _ = recorded(
        script(
            """
            from tracer import phases
            for x, y in loader(3):
                with phases.phase("step", epoch=11, step=40):
                    learn(x, y)
            """
        )
    )
    query = "SELECT name, source, epoch, step, count(*) FROM phases GROUP BY ALL ORDER BY 1"
    found = {row[0]: row[1:] for row in rows(trace, query)}
    assert found["step"] == ("script", 11, 40, 3)
    assert found["backward"] == ("automatic", 11, 40, 3)
    assert not {"train", "epoch"} & found.keys()


def test_marks_that_are_not_wanted_are_not_made(recorded, script):
    trace, _ = recorded(script("for x, y in loader(3): learn(x, y)"), "--no-auto-phases")
    assert counts(trace) == {}


def test_without_pytorch_nothing_is_left(recorded, tmp_path):
    recorded([sys.executable, "-c", "print(1)"])
    assert [p.name for p in (tmp_path / "x.trace/raw/marks").iterdir()] == []


def test_a_killed_script_s_marks_are_there_up_to_the_last(recorded, script):
    trace, _ = recorded(
        script(
            """
            import signal
            for number, (x, y) in enumerate(loader(8)):
                learn(x, y)
                if number == 4: os.kill(os.getpid(), signal.SIGKILL)
            """
        ),
        status=128 + 9,
    )
    found = counts(trace)
    assert [found[n] for n in ("step", "forward", "backward", "optimizer")] == [5, 5, 5, 5]


CRASHES = {
    "in a layer": "model(torch.zeros(3))",
    "in the data": """
        class Bad(torch.utils.data.Dataset):
            def __len__(self): return 9
            def __getitem__(self, i): return torch.zeros(3) if i < 5 else {}[i]
        for x in DataLoader(Bad(), num_workers=1): pass
    """,
    "in backward": "criterion(model(data[0][0][None]), data[0][1][None]).detach().backward()",
    "in a file": "torch.load('/none/such')",
    "in an optimizer": "optimizer.step(lambda: 1 / 0)",
    "on purpose": "print('so far'); sys.exit(23)",
}


EACH_IN_A_CHILD = """
import pathlib, textwrap
optimizer.zero_grad()  # imports what each child would import for seconds
crashes = json.loads(pathlib.Path(sys.argv[1]).read_text())
for name, source in crashes.items():
    if (child := os.fork()) == 0:
        for fd, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{sys.argv[2]}/{name}.{stream}", os.O_CREAT | os.O_WRONLY), fd)
        exec(compile(textwrap.dedent(source), name, "exec"))
        sys.exit()
    _, status = os.waitpid(child, 0)
    pathlib.Path(sys.argv[2], f"{name}.status").write_text(str(os.waitstatus_to_exitcode(status)))
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """Status, stdout and stderr of each crash, without marks and with them."""
    folder = tmp_path_factory.mktemp("crashes")
    (folder / "job.py").write_text(MODEL + EACH_IN_A_CHILD)
    (folder / "crashes.json").write_text(json.dumps(CRASHES))
    (folder / "marks").mkdir()
    marks = {MARKS_ENV: str(folder / "marks"), "PYTHONPATH": str(STARTUP)}
    found = []
    for name, environment in (("bare", {}), ("marked", marks)):
        (folder / name).mkdir()
        command = [sys.executable, folder / "job.py", folder / "crashes.json", folder / name]
        subprocess.run(command, env={**os.environ, **environment}, cwd=folder, check=True)
        found.append(
            {
                where: [
                    (folder / name / f"{where}.{part}").read_text()
                    for part in ("status", "out", "err")
                ]
                for where in CRASHES
            }
        )
    assert list((folder / "marks").iterdir())
    return found


@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_looks_as_it_does_without_us(crashed, where):
    bare, marked = crashed
    assert bare[where][0] != "0"
    assert marked[where] == bare[where]


def test_a_script_s_own_sitecustomize_runs_and_ours_is_not_seen(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.theirs = 23")
    look = (
        "import sys, sitecustomize; print(theirs, sitecustomize.__file__, sys.path[1:],"
        " [str(f) for f in sys.meta_path if 'Finder' in type(f).__name__ and 0])"
    )
    environment = {**os.environ, "PYTHONPATH": str(own)}
    ours = {**environment, "PYTHONPATH": f"{STARTUP}:{own}", MARKS_ENV: str(tmp_path)}
    bare, marked = (
        subprocess.run(
            [sys.executable, "-c", look], env=e, capture_output=True, text=True, check=True
        )
        for e in (environment, ours)
    )
    assert marked.stdout == bare.stdout
    assert marked.stdout.startswith("23 ")


def test_a_sitecustomize_that_fails_says_so_as_ever(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ours = {**environment, "PYTHONPATH": f"{STARTUP}:{tmp_path}", MARKS_ENV: str(tmp_path)}
    bare, marked = (
        subprocess.run([sys.executable, "-c", "print(1)"], env=e, capture_output=True, check=True)
        for e in (environment, ours)
    )
    assert (marked.stdout, marked.stderr) == (bare.stdout, bare.stderr)


def test_a_vendored_tracer_is_the_script_s_own(recorded, script, tmp_path):
    (tmp_path / "tracer").mkdir()
    (tmp_path / "tracer/__init__.py").write_text("WHOSE = 'theirs'")
    trace, out = recorded(
        script("import tracer; print(tracer.WHOSE)\nfor x, y in loader(3): learn(x, y)")
    )
    assert out == "theirs\n"
    assert counts(trace)["optimizer"] == 3


def test_a_fork_without_exec_marks_as_itself(recorded, script):
    trace, _ = recorded(
        script(
            """
            for x, y in loader(2): learn(x, y)
            child = os.fork()
            if child == 0:
                for x, y in loader(3): learn(x, y)
                os._exit(0)
            os.waitpid(child, 0)
            for x, y in loader(4): learn(x, y)
            """
        )
    )
    query = "SELECT count(*) FROM phases WHERE name = 'optimizer' GROUP BY pid ORDER BY 1"
    assert rows(trace, query) == [(3,), (6,)]


def test_the_job_s_output_and_status_pass_through(tracer, script):
    command = script("for x, y in loader(2): learn(x, y)\nprint('done'); sys.exit(7)")
    ended = tracer("record", "-o", "x.trace", "-e", "block", "--", *command, status=7)
    assert ended.out == "done\n"


def test_what_cannot_be_marked_is_said(recorded, script, tmp_path):
    """A torch of another make: one that has not what marks are put into."""
    (tmp_path / "torch.py").write_text("class nn: Module = None")
    command = tmp_path / "job.py"
    command.write_text("import torch")
    trace, _ = recorded([sys.executable, str(command)])
    (note,) = trace.manifest["unmarked"]
    assert "modules: " in note and "optimizer: " in note
