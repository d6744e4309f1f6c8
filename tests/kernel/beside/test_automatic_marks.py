"""Scripts that know nothing of us, whose phases are there all the same; and that notice nothing."""

import subprocess
import sys

import pytest

from tests.support.loads import Load, Recorded, finished
from tests.support.scripts import MODEL, Job, ended
from tracer.analysis.views.waiting.steps import steps
from tracer.store.trace import Trace

pytest.importorskip("torch", reason="PyTorch is not installed")

EPOCHS = [3, 7, 5, 2, 6]
STEPS = sum(EPOCHS)
LEARN = "for x, y in loader(3): learn(x, y)"
NICE = ("nice", "-n", "15")
"""Before a command that keeps all CPUs busy: tests that run beside it measure time."""

SCRIPTS = {}
"""Scripts that run in processes of their own, by name. One recording has them all: `recorded`."""


class Marked(Recorded):
    """The recording of SCRIPTS."""

    def phases(self, name, query):
        """The rows of a query over `mine`: the phases of a script and of its children."""
        mine = "WITH mine AS (SELECT * FROM phases WHERE list_contains(?, pid))"
        return self.rows(f"{mine} {query}", self.pids(name))

    def counts(self, name):
        """The number of phases of each name."""
        return dict(self.phases(name, "SELECT name, count(*) FROM mine GROUP BY ALL"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """SCRIPTS and the crashes in one recording, beside processes that import PyTorch themselves.

    Meanwhile the crashes also happen without us.
    """
    bare, folder = (tmp_path_factory.mktemp(name) for name in ("bare", "recorded"))
    job = Job(tmp_path_factory.mktemp("job"), last="print('done'); sys.exit(7)")
    command = job.command(folder, {**SCRIPTS, **CRASHES}, apart(folder))
    alone = [*NICE, *job.command(bare, CRASHES, {})]
    with subprocess.Popen(alone, cwd=bare, stdout=subprocess.DEVNULL):
        ran = finished(("record", "-o", "x.trace", "-e", "block", "--", *NICE, *command), folder)
    how = ended(folder)
    with Trace(folder / "x.trace") as trace:
        marked = Marked(trace, {name: Load(e.pid, e.out) for name, e in how.items()})
        marked.ran, marked.ended, marked.bare = ran, how, ended(bare)
        yield marked


@pytest.fixture
def one_script(tracer, tmp_path):
    """Record a script that is the command itself, by the name of "job"."""
    opened = []

    def run(source, *options):
        (tmp_path / "train.py").write_text(source)
        command = (sys.executable, tmp_path / "train.py")
        ran = tracer("record", "-o", "x.trace", "-e", "block", *options, "--", *command)
        opened.append(Trace(tmp_path / "x.trace"))
        pid = opened[-1].manifest["targets"][0]["pid"]
        return Marked(opened[-1], {"job": Load(pid, ran.out)})

    yield run
    for trace in opened:
        trace.close()


def apart(folder):
    """Commands of processes of their own, and their files."""
    for name, source in (
        ("ranks/train.py", MODEL + RANK),
        ("theirs/parent.py", "import subprocess, sys\nsubprocess.run(sys.argv[1:], check=True)"),
        ("theirs/train.py", f"{MODEL}import tracer; print(tracer.WHOSE)\n{LEARN}"),
        ("theirs/tracer/__init__.py", "WHOSE = 'theirs'"),
        # One that has not what marks are put into.
        ("other/torch.py", "class nn: Module = None"),
        ("other/job.py", "import torch"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    parent, train = folder / "theirs/parent.py", folder / "theirs/train.py"
    return {
        name: [sys.executable, *map(str, arguments)]
        for name, arguments in (
            ("ranks", (*torchrun, folder / "ranks/train.py")),
            ("theirs", (parent, sys.executable, train)),
            ("other", (folder / "other/job.py",)),
        )
    }


SCRIPTS["training"] = f"""
for epoch, batches in enumerate({EPOCHS}):
    for x, y in loader(batches, workers=2):
        fetched = time.monotonic_ns()
        learn(x, y)
        print(epoch, fetched, time.monotonic_ns())
    torch.save(model.state_dict(), "model.pt")
"""


def test_every_step_of_every_epoch_is_there_with_its_parts(recorded):
    said = [tuple(map(int, line.split())) for line in recorded.loads["training"].out.splitlines()]
    assert len(said) == STEPS
    expected = [(epoch, step) for step, (epoch, *_) in enumerate(said)]
    for name in ("step", "forward", "backward", "optimizer"):
        query = f"SELECT epoch, step FROM mine WHERE name = '{name}' ORDER BY start"
        assert recorded.phases("training", query) == expected
    found = recorded.counts("training")
    assert (found["train"], found["epoch"], found["checkpoint"]) == (1, 5, 5)
    query = "SELECT epoch FROM mine WHERE name = 'checkpoint' ORDER BY start"
    assert recorded.phases("training", query) == [(epoch,) for epoch in range(5)]


def test_workers_fetch_on_their_own_processes_for_the_steps_that_use_it(recorded):
    (main,) = recorded.phases("training", "SELECT DISTINCT pid FROM mine WHERE name = 'optimizer'")
    assert main == (recorded.pid("training"),)
    query = "SELECT epoch, step FROM mine WHERE name = 'fetch' AND pid {} {} ORDER BY step"
    own = recorded.phases("training", query.format("=", *main))
    theirs = recorded.phases("training", query.format("!=", *main))
    assert len(own) == STEPS
    assert theirs == own
    workers = "SELECT count(DISTINCT pid) FROM mine WHERE name = 'fetch'"
    assert recorded.phases("training", workers) == [(1 + 2 * len(EPOCHS),)]


def test_the_parts_of_a_step_add_up_to_what_the_script_measured(recorded):
    found = recorded.rows(
        'SELECT epoch, start, "end", total_ns, fetch_stall_ns, compute_ns,'
        " checkpoint_ns + overhead_ns, forward_ns + backward_ns + optimizer_ns,"
        " least(fetch_stall_ns, forward_ns, backward_ns, optimizer_ns, overhead_ns)"
        f" FROM {steps(recorded.trace)} WHERE pid = ? ORDER BY start",
        recorded.pid("training"),
    )
    said = [tuple(map(int, line.split())) for line in recorded.loads["training"].out.splitlines()]
    for row, (said_epoch, fetched, learnt) in zip(found, said, strict=True):
        epoch, start, end, total, stall, compute, rest, parts, least = row
        assert epoch == said_epoch
        assert total == end - start == stall + compute + rest
        assert parts == compute
        assert least >= 0
        assert start + stall < fetched < fetched + compute < learnt < end
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
SCRIPTS["GPU"] = PLAYED_GPU


def assert_the_gpu_s_time_is_beside_the_cpu_s(recorded, name):
    query = (
        "SELECT name, count(*), bool_and(gpu_ns > 0) FROM mine WHERE step IS NOT NULL"
        " AND gpu_ns IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    # The request at the end was not carried out.
    assert recorded.phases(name, query) == [
        ("backward", 8, True), ("forward", 8, True), ("optimizer", 7, True),
    ]  # fmt: skip
    query = (
        "SELECT count(gpu_forward_ns), count(gpu_optimizer_ns) "
        f"FROM {steps(recorded.trace)} WHERE pid = ?"
    )
    assert recorded.rows(query, recorded.pid(name)) == [(8, 7)]


def test_the_gpu_s_time_is_beside_the_cpu_s(recorded):
    assert recorded.trace.manifest["cuda_sync"] is False
    assert int(recorded.loads["GPU"].out) == 0
    assert_the_gpu_s_time_is_beside_the_cpu_s(recorded, "GPU")


def test_the_cpu_waits_for_the_gpu_where_it_is_told_to(one_script):
    recorded = one_script(MODEL + PLAYED_GPU, "--cuda-sync")
    assert recorded.trace.manifest["cuda_sync"] is True
    assert int(recorded.loads["job"].out) == 8 * 4 * 2  # the model, the loss
    assert_the_gpu_s_time_is_beside_the_cpu_s(recorded, "job")


SCRIPTS["accumulating"] = """
for x, y in loader(6):
    criterion(model(x), y).backward()
    if x is not None and model[0].weight.grad is not None:
        seen = globals().get("seen", 0) + 1
    if seen % 2 == 0:
        optimizer.step(); optimizer.zero_grad()
"""


def test_numbers_count_on_with_gradients_accumulated(recorded):
    found = recorded.counts("accumulating")
    assert (found["step"], found["forward"], found["backward"], found["optimizer"]) == (6, 6, 6, 3)


SCRIPTS["evaluating"] = """
for epoch in range(2):
    for x, y in loader(3): learn(x, y)
    model.eval()
    with torch.no_grad():
        for x, y in loader(5): model(x)
    model.train()
"""
SCRIPTS["inferring"] = """
model.load_state_dict(model.state_dict())
model.eval()
with torch.inference_mode():
    for x, y in loader(5): model(x)
"""


def test_evaluation_is_told_from_training_and_inference(recorded):
    found = recorded.counts("evaluating")
    assert (found["step"], found["forward"], found["epoch"], found["eval"]) == (6, 6, 2, 2)
    assert "inference" not in found
    found = recorded.counts("inferring")
    assert [found[n] for n in ("inference", "step", "forward", "model_load")] == [1, 5, 5, 1]
    assert "train" not in found


SCRIPTS["compiled"] = """
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


def test_a_compiled_model_mixed_precision_and_two_models(recorded):
    found = recorded.counts("compiled")
    assert [found[n] for n in ("step", "forward", "backward", "optimizer")] == [4, 4, 4, 4]


def test_a_late_import_of_pytorch_in_a_child(recorded):
    assert recorded.counts("theirs")["optimizer"] == 3


RANK = """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
for x, y in loader(3): learn(x, y)
dist.barrier()
os._exit(0)  # gloo may abort at an orderly end, with or without us
"""


def test_both_ranks_of_torchrun(recorded):
    assert recorded.ended["ranks"].status == 0
    query = "SELECT count(*) FROM mine WHERE name = '{}' GROUP BY pid"
    for name in ("step", "forward", "backward", "optimizer"):
        assert recorded.phases("ranks", query.format(name)) == [(3,), (3,)]


SCRIPTS["persistent"] = """
again = DataLoader(data, batch_size=16, num_workers=1, persistent_workers=True)
for epoch in range(3):
    for x, y in again: learn(x, y)
"""


def test_persistent_workers_are_set_to_work_anew(recorded):
    expected = [(step // 4, step) for step in range(12)]
    for sign in ("=", "!="):
        query = (
            "SELECT epoch, step FROM mine WHERE name = 'fetch' "
            f"AND pid {sign} {recorded.pid('persistent')} ORDER BY step"
        )
        assert recorded.phases("persistent", query) == expected


SCRIPTS["marking"] = """
from tracer import phases
for x, y in loader(3):
    with phases.phase("step", epoch=11, step=40):
        learn(x, y)
"""


def test_a_phase_that_the_script_marks_is_recorded_once(recorded):
    query = "SELECT name, source, epoch, step, count(*) FROM mine GROUP BY ALL ORDER BY 1"
    found = {row[0]: row[1:] for row in recorded.phases("marking", query)}
    assert found["step"] == ("script", 11, 40, 3)
    assert found["backward"] == ("automatic", 11, 40, 3)
    assert not {"train", "epoch"} & found.keys()


def test_marks_that_are_not_wanted_are_not_made(one_script):
    assert one_script(MODEL + LEARN, "--no-auto-phases").counts("job") == {}


def test_without_pytorch_nothing_is_left(one_script):
    marks = one_script("print(1)").trace.folder / "raw/marks"
    assert list(marks.iterdir()) == []


SCRIPTS["killed"] = """
import signal
for number, (x, y) in enumerate(loader(8)):
    learn(x, y)
    if number == 4: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_script_s_marks_are_there_up_to_the_last(recorded):
    assert recorded.ended["killed"].status == -9
    found = recorded.counts("killed")
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


@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_looks_as_it_does_without_us(recorded, where):
    bare = recorded.bare[where]
    assert bare.status != 0
    assert recorded.ended[where][1:] == bare[1:]


def test_a_vendored_tracer_is_the_script_s_own(recorded):
    assert recorded.loads["theirs"].out == "theirs\n"
    assert recorded.counts("theirs")["optimizer"] == 3


SCRIPTS["forking"] = """
for x, y in loader(2): learn(x, y)
child = os.fork()
if child == 0:
    for x, y in loader(3): learn(x, y)
    os._exit(0)
os.waitpid(child, 0)
for x, y in loader(4): learn(x, y)
"""


def test_a_fork_without_exec_marks_as_itself(recorded):
    query = "SELECT count(*) FROM mine WHERE name = 'optimizer' GROUP BY pid ORDER BY 1"
    assert recorded.phases("forking", query) == [(3,), (6,)]


def test_the_job_s_output_and_status_pass_through(recorded):
    assert (recorded.ran.out, recorded.ran.status) == ("done\n", 7)


def test_the_recorder_names_what_it_cannot_mark(recorded):
    """A torch of another make."""
    (note,) = recorded.trace.manifest["unmarked"]
    assert "modules: " in note and "optimizer: " in note
