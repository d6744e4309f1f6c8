"""A job to run, with its data and its recording, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tracer.workloads.cli import check
from tracer.workloads.containers.versions import Versions

WEIGHTS = "weights.pt"
"""The file of a model, in its folder."""
_OF_DATA = ("--seed", "--samples", "--dataset", "--scale")
_OF_SERVER = ("--handlers", "--threads", "--device", "--patience")


@dataclass(frozen=True)
class Job:
    """A job to run. `mode`: train (all four stages), infer, or serve.

    `options`: options of `python -m tracer.workloads`; if the mode is serve, those of its `serve`
    and `request`. `data` None: a folder beside the output, named for the set. `record` is the trace
    to make, `record_options` are further options of `tracer record`. The recording goes on for
    `linger_s` after the job has ended. `note`: file that names the session of processes that runs
    the job (`tracer.workloads.sessions`). `longest_s`: seconds after which the job is killed.
    `cgroups`: cgroups that a job on the host joins before it begins. `checkpoint`: the trained
    model to serve, or to infer with; None: fresh weights. `weights`: facts about that file, known
    once the job is prepared.
    """

    model: str
    mode: str
    output: Path
    data: Path | None = None
    options: list[str] = field(default_factory=list)
    record: Path | None = None
    record_options: list[str] = field(default_factory=list)
    linger_s: float = 0.0
    note: Path | None = None
    longest_s: float | None = None
    cgroups: list[Path] = field(default_factory=list)
    checkpoint: Path | None = None
    weights: dict[str, object] = field(default_factory=dict)

    def arguments(self, data: str, output: str, model: str) -> list[str]:
        """Returns the arguments of `python -m tracer.workloads`, with paths valid where it runs."""
        found = [self.mode, self.model, "--data", data, "--output", output, *self.options]
        if self.mode == "infer":
            found += ["--checkpoint", f"{model}/{WEIGHTS}"]
        return found

    def check(self) -> None:
        """Raises JobError for an option that the job would refuse."""
        if self.mode == "serve":
            check(self.server_arguments("model", "socket"))
            check(["request", self.model, *_chosen(self.options, _OF_SERVER, others=True)])
        else:
            check(self.arguments("data", "output", "model"))

    def data_options(self) -> list[str]:
        """Returns those of its options that its data depends on."""
        return _chosen(self.options, _OF_DATA)

    def server_arguments(self, model: str, socket: str) -> list[str]:
        """Returns the arguments of the server, with the paths valid where it runs."""
        own = _chosen(self.options, _OF_SERVER)
        weights = f"{model}/{WEIGHTS}"
        return ["serve", self.model, "--checkpoint", weights, "--socket", socket, *own]

    def client_arguments(self) -> list[str]:
        """Returns the arguments of the client: all options except the server's own."""
        own = _chosen(self.options, _OF_SERVER, others=True)
        return ["request", self.model, "--data", str(self.data), *own]


@dataclass(frozen=True)
class Ran:
    """The result of a run: where it ran, a summary per job (None: it failed), failures, versions.

    The summary of a job that serves is {"server": ..., "client": ...}.
    """

    where: str
    summaries: list[dict[str, object] | None]
    failures: list[str]
    versions: Versions
    image: str | None = None


def _chosen(options: list[str], wanted: tuple[str, ...], others: bool = False) -> list[str]:
    """Returns the options of these names with their values, or all others."""
    found = []
    chosen = False
    for option in options:
        if option.startswith("--"):
            chosen = option.partition("=")[0] in wanted
        if chosen != others:
            found.append(option)
    return found
