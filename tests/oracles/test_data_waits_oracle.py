"""The finding about waiting for data says what it was spent on, as the jobs were laid out."""

import re
import tempfile
from pathlib import Path

import pytest

from tests.oracles.data_waits import Answer, World
from tests.oracles.drawing import seeds
from tests.oracles.fetching_jobs import OTHERS
from tests.support.in_memory import PLACE
from tests.support.traces import make_trace
from tracer.analysis.findings.loading import stalls

pytestmark = pytest.mark.slow

WORLDS = seeds(8)
LEAST = 0.1
"""Least share of a minibatch's time that is worth a cause."""
SAID = {
    "work": "on work for the samples, such as decoding",
    "disk": "on reads of a disk",
    "opening": "on opening files and looking them up on a disk",
    "cpu": "waiting for a CPU that another thread has",
    "lock": "waiting for a lock",
    "memory": "waiting for memory that others have to give up",
    OTHERS: f"waiting for others: {OTHERS}",
}
ADVICE = {
    "opening": "fewer files",
    "cpu": "give the job CPUs of its own",
    "lock": "move their work into processes",
    "memory": "raise the memory limit",
}
SPENT = re.compile(
    r"takes (?P<value>.+?) of a minibatch's time .*?, (?P<share>[^,]+ %) of it spent (?P<rest>.+)"
)


def sentence_of(world: World) -> str | None:
    """Returns the sentence of the finding, if there is one."""
    tables = world.tables | {"loss": world.gap}
    with (
        tempfile.TemporaryDirectory(dir=PLACE) as folder,
        make_trace(Path(folder) / "t", tables, **world.manifest) as trace,
    ):
        return next((f.sentence for f in stalls(trace) if f.topic == "data loading"), None)


def advice(truth: Answer) -> str:
    """Returns the words of the advice that docs/findings.md has for the main cause."""
    if truth.main == "work":
        if not truth.workers:
            return "set num_workers"
        return "use more workers" if truth.cpus > 1 else "do less work for each sample"
    if truth.main == OTHERS:
        return "use more workers" if truth.workers else "load the data with workers"
    if truth.main == "disk":
        if truth.pressed:
            return "limit"
        return "a disk of its own" if truth.crowded else "or keep the data in memory"
    return ADVICE[truth.main]


def rounded(said: str, share: float) -> bool:
    """Returns whether a percentage is the rounded share (0 to 100)."""
    if said == "more than 99 %":
        return 99.49 <= share < 100
    return abs(float(said.removesuffix(" %")) - share) <= (0.501 if share >= 9.9 else 0.0501)


@pytest.mark.parametrize("seed", WORLDS)
def test_the_wait_for_data_was_spent_on_the_cause_of_the_oracle(seed):
    world = World(seed)
    truth = world.truth
    sentence = sentence_of(world)
    if not truth.waited_ns:
        assert sentence is None
        return
    assert sentence is not None
    found = SPENT.search(sentence)
    if not world.measured or truth.waited_ns < truth.total_ns * LEAST:
        assert found is None
        return
    assert found is not None, sentence
    assert sentence.endswith("the number is incomplete") == truth.lossy
    assert rounded(found["value"], 100 * truth.waited_ns / truth.total_ns)
    if truth.is_close:
        pytest.skip("two causes within 1 % of each other")
    assert found["rest"].startswith(SAID[truth.main]), (truth, sentence)
    assert rounded(found["share"], 100 * truth.spent[truth.main] / truth.waited_ns), truth
    assert advice(truth) in found["rest"].removeprefix(SAID[truth.main]), (truth, sentence)
