"""Trainer of transformers and Lightning train for two epochs, with an evaluation after each."""

import json
import sys
from importlib.util import find_spec

import pytest

from tests.support.loads import finished
from tracer.analysis.views.waiting.steps import steps
from tracer.store.trace import Trace

for package in ("torch", "transformers", "accelerate", "lightning"):
    if find_spec(package) is None:  # to import them takes seconds
        pytest.skip(f"{package} is not installed", allow_module_level=True)

EPOCHS, STEPS, EVALUATED = 2, 7, 3

COMMON = """
import json, os, sys, time
os.environ["HF_HUB_OFFLINE"] = "1"
from tracer.workloads.models import vision
vision.models()  # both frameworks import torchvision, whose compiled part may not load
import torch
said = []
def say(what, *more): said.append((what, time.monotonic_ns(), *more))
def stat(path):
    # CLOCK_MONOTONIC's time at which a file was last written to.
    return os.stat(path).st_mtime_ns - time.time_ns() + time.monotonic_ns()
"""

TRAINER = """
from transformers import Trainer, TrainerCallback, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return {"x": torch.randn(8), "labels": torch.tensor(i % 2)}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 2)
    def forward(self, x, labels):
        out = self.body(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}
class Say(TrainerCallback):
    def on_step_begin(self, *_, **__): say("begin")
    def on_step_end(self, *_, **__): say("end")
    def on_prediction_step(self, *_, **__): say("evaluated")
    def on_save(self, args, state, *_, **__):
        folder = f"trainer/checkpoint-{state.global_step}"
        for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            say("saved", stat(f"{folder}/{name}"))
arguments = TrainingArguments(
    output_dir="trainer", num_train_epochs=EPOCHS, report_to=[], use_cpu=True, disable_tqdm=True,
    per_device_train_batch_size=2, per_device_eval_batch_size=2, dataloader_num_workers=1,
    eval_strategy="epoch", save_strategy="epoch", logging_strategy="no")
Trainer(
    Model(), arguments, train_dataset=Data(2 * STEPS), eval_dataset=Data(2 * EVALUATED),
    callbacks=[Say()],
).train()
"""

LIGHTNING = """
import lightning
class Data(torch.utils.data.Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.randn(8), torch.tensor(i % 2)
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 2)
    def loss(self, batch): return torch.nn.functional.cross_entropy(self.body(batch[0]), batch[1])
    def on_train_batch_start(self, *_): say("begin")
    def training_step(self, batch, index): return self.loss(batch)
    def on_train_batch_end(self, *_): say("end")
    def validation_step(self, batch, index):
        self.log("loss", self.loss(batch))
        say("evaluated")
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
class Saved(lightning.pytorch.callbacks.ModelCheckpoint):
    def _save_checkpoint(self, trainer, path):
        super()._save_checkpoint(trainer, path)
        say("saved", stat(path))
def loader(n): return torch.utils.data.DataLoader(Data(2 * n), batch_size=2, num_workers=1)
lightning.Trainer(
    max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_progress_bar=False,
    enable_model_summary=False, default_root_dir="lightning", num_sanity_val_steps=0,
    callbacks=[Saved(dirpath="lightning", save_top_k=-1)],
).fit(Net(), loader(STEPS), loader(EVALUATED))
"""

SCRIPTS = {"trainer": TRAINER, "light": LIGHTNING}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The trace of both, and by name a script's pid and what it said."""
    folder = tmp_path_factory.mktemp("frameworks")
    numbers = f"EPOCHS, STEPS, EVALUATED = {EPOCHS}, {STEPS}, {EVALUATED}\n"
    for name, source in SCRIPTS.items():
        last = f"json.dump([os.getpid(), said], open('{name}.json', 'w'))\n"
        (folder / f"{name}.py").write_text(COMMON + numbers + source + last)
    both = " & ".join(f"{sys.executable} {name}.py" for name in SCRIPTS)
    # Tests that run beside this one measure time.
    job = ("nice", "-n", "15", "sh", "-c", f"{both} & wait")
    command = ("record", "-o", "x.trace", "-e", "block", "--", *job)
    ran = finished(command, folder)
    assert ran.status == 0, ran.err
    said = {name: json.loads((folder / f"{name}.json").read_text()) for name in SCRIPTS}
    with Trace(folder / "x.trace") as trace:
        yield trace, said


@pytest.fixture(params=SCRIPTS)
def job(recorded, request):
    """Returns a query over one script's `phases`, its trace, its pid, and the times that it
    printed."""
    trace, said = recorded
    pid, times = said[request.param]

    def query(text):
        return trace.connection.execute(
            f"WITH mine AS (SELECT * FROM phases WHERE pid = {pid}) {text}"
        ).fetchall()

    return query, trace, pid, [tuple(one) for one in times]


def test_the_steps_are_the_framework_s(job):
    query, _, _, times = job
    begun = [at for what, at, *_ in times if what == "begin"]
    ended = [at for what, at, *_ in times if what == "end"]
    computed = query(
        'SELECT epoch, step, min(start), max("end") FROM mine'
        " WHERE name IN ('forward', 'backward') AND step IS NOT NULL GROUP BY ALL ORDER BY step"
    )
    assert [row[:2] for row in computed] == [
        (number // STEPS, number) for number in range(EPOCHS * STEPS)
    ]
    for (_, _, start, end), begin, until in zip(computed, begun, ended, strict=True):
        assert begin < start < end < until


def test_each_evaluation_lies_between_epochs_and_takes_no_fetch_of_a_step(job):
    query, trace, pid, times = job
    evaluations = query("SELECT epoch, start, \"end\" FROM mine WHERE name = 'eval' ORDER BY start")
    assert [epoch for epoch, *_ in evaluations] == list(range(EPOCHS))
    evaluated = [at for what, at, *_ in times if what == "evaluated"]
    assert len(evaluated) == EPOCHS * EVALUATED
    for number, (_, start, _) in enumerate(evaluations):
        assert start < evaluated[number * EVALUATED]
    stages = trace.connection.execute(
        f"SELECT stage, epoch, count(*) FROM {steps(trace)} WHERE pid = ? GROUP BY ALL ORDER BY 2",
        [pid],
    ).fetchall()
    assert stages == [("train", epoch, STEPS) for epoch in range(EPOCHS)]
    inside = (
        "SELECT count(*) FROM mine AS step JOIN mine AS eval ON step.name = 'step'"
        ' AND eval.name = \'eval\' AND step.start < eval."end" AND step."end" > eval.start'
    )
    assert query(inside) == [(0,)]


def test_the_files_of_a_checkpoint_are_one(job):
    query, _, _, times = job
    checkpoints = query("SELECT start, \"end\" FROM mine WHERE name = 'checkpoint' ORDER BY start")
    assert len(checkpoints) == EPOCHS
    written = [at for what, _, *rest in times if what == "saved" for at in rest]
    a_file_each = len(written) // EPOCHS
    # A file's time is the kernel's last tick, of at most 10 ms.
    for at, when in enumerate(written):
        start, end = checkpoints[at // a_file_each]
        assert start - 10_000_000 <= when <= end
