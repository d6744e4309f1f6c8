"""The identity of a trace: the job, its place and its repeat, from a study's run or the trace.

A run of a study has it in `run.json` beside its trace. Of any other trace its manifest tells: its
targets are containers or none, and a command line has a model, a seed, workers and the like.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.analysis.studies.facts import RunFacts, read_run
from tracer.analysis.studies.papers.numbers import MODELS
from tracer.analysis.studies.runs import factors_of, used
from tracer.probes.errors import BadTrace
from tracer.store.manifest import Manifest
from tracer.store.manifest_parts import TargetFacts
from tracer.store.names import escaped
from tracer.store.trace import Trace

OF_A_STUDY = "run.trace"
"""Name of the trace of a study's run."""

HOST = "host"
TRAIN, INFER = "train", "infer"

_NUMBERS = {"--workers": "workers", "--batch-size": "batch_size", "--epochs": "epochs"}
_SEED = "--seed"
_MOST_CHARACTERS = 80
_PLACE_OF_JOBS = frozenset({"target"})


@dataclass(frozen=True)
class Identity:
    """The identity of a trace.

    `id`: its name. `factors`: model, where (host, or the number of containers), mode (train or
    infer), repeat, and other known factors, named as in `tracer.analysis.studies.runs.FACTORS`.
    `dev`: the device of the run's own file system; None: not known, so all devices count.
    `of_study`: it is a run of a study. `work`: the job in words; "" if not known.
    """

    id: str
    factors: dict[str, Any]
    dev: str | None = None
    of_study: bool = False
    work: str = ""

    @property
    def where(self) -> str:
        """The place: host, or the number of containers."""
        return str(self.factors["where"])


def identity(trace: Trace) -> Identity:
    """Returns the identity of this trace."""
    folder = trace.folder.resolve()
    facts = None
    if folder.name == OF_A_STUDY:
        with contextlib.suppress(BadTrace):  # a damaged run.json tells nothing
            facts = read_run(folder.parent)
    if facts is not None and "factors" in facts:
        return _of_run(folder, facts)
    return _of_manifest(folder, trace.manifest)


def _of_run(folder: Path, facts: RunFacts) -> Identity:
    factors: dict[str, Any] = {"model": "", "where": HOST, "mode": TRAIN, "repeat": None}
    factors |= {name: value for name, value in factors_of(facts).items() if value is not None}
    factors |= used(facts)
    return Identity(
        escaped(folder.parent.name),
        factors,
        facts.get("dev"),
        True,
        f"{factors['model']}, {factors['mode']}",
    )


def _of_manifest(folder: Path, manifest: Manifest) -> Identity:
    jobs = [one for one in manifest["targets"] if one["role"] in _PLACE_OF_JOBS]
    containers = sum(1 for one in jobs if is_container(one))
    command = next((one["command"] for one in jobs if one.get("command")), [])
    command = command or list(manifest.get("command") or [])
    factors: dict[str, Any] = {
        "model": _model(command, jobs, folder),
        "where": str(containers) if containers else HOST,
        "mode": INFER if "infer" in command else TRAIN,
        "repeat": _after(command, _SEED),
    }
    for option, name in _NUMBERS.items():
        value = _after(command, option)
        if value is not None and value.isdecimal() and len(value) < 10:
            factors[name] = int(value)
    return Identity(escaped(folder.name).removesuffix(".trace"), factors, work=_work(command))


def is_container(target: TargetFacts) -> bool:
    """Returns whether a target is a container."""
    return target["kind"] == "container" or "container" in target


def _model(command: Sequence[str], jobs: Sequence[TargetFacts], folder: Path) -> str:
    known = set(MODELS.values())
    for word in command:
        if word in known:
            return word
    scripts = [Path(word).name for word in command if word.endswith(".py")]
    said = scripts[0] if scripts else jobs[0]["name"] if jobs else escaped(folder.name)
    return said[:_MOST_CHARACTERS]


def _after(command: Sequence[str], option: str) -> str | None:
    for word, then in itertools.pairwise(command):
        if word == option:
            return then[:_MOST_CHARACTERS]
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")[:_MOST_CHARACTERS]
    return None


def _work(command: Sequence[str]) -> str:
    """Returns a command line without its repeat and its output paths."""
    words = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in (_SEED, "--output", "-o"):
            skip = True
        elif not word.startswith((f"{_SEED}=", "--output=")):
            words.append(word)
    return " ".join(words)
