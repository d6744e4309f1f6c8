"""The JSON files of a study's folder: their reader, and the classes that they are checked against.

    study.json             the declaration of the study
    runs/ID/run.json       the outcome of the run
    runs/ID/measures.json  the kept measures of its trace
    runs/ID/extracts.json  the kept frames of its trace

The folder is not trusted. No link below it is followed, and the size of its files is bounded, each
alone and all together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from tracer.probes.errors import BadTrace
from tracer.store.checked import MOST_PARTS, STRICT, Listed, parsed, what_is_wrong
from tracer.store.files import as_invoking_user, invoking_user, read_bounded, write_whole

RUNS = "runs"
RUN = "run.json"
STUDY = "study.json"

MOST_RUNS = 10_000
"""The most folders of runs: the runner makes no more for one study."""
MOST_BYTES = 64 << 20
"""The most bytes of all files of one kind that a report reads: ten thousand of six kilobytes."""
_MOST_STUDY_BYTES = 16 << 20
_MOST_RUN_BYTES = 1 << 20
_MOST_RUN_PARTS = 50_000

Text = Annotated[str, Field(max_length=1000)]
Long = Annotated[str, Field(max_length=20_000)]
Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
Device = Annotated[str, Field(pattern=r"^\d{1,8}:\d{1,8}$")]


class Factors(TypedDict, total=False):
    """The factors of a run, as `workloads/studies/study.py` declares them."""

    model: Text
    where: Annotated[str, Field(pattern=r"^(host|[1-9]\d?)$")]
    mode: Text
    dataset: Text | None
    workers: Count | None
    batch_size: Count | None
    epochs: Count | None
    at_least: Number | None
    at_most: Number | None
    batches: Count | None
    checkpoint_every: Text | None
    checkpoint_way: Text | None
    threads: Count | None
    cpus: Number | None
    memory: Text | None
    swap: Text | None
    page_cluster: Count | None
    dirty_background_bytes: Text | None
    seccomp: bool
    cache: Text
    medium: Text
    rate: Number | None
    requests: Count | None


class ModeSettings(TypedDict, total=False):
    """The settings of a power mode."""

    cores: Number | None
    cpu_mhz: Number | None
    cpu_quota: Number | None
    gpu_mhz: Number | None
    memory_mhz: Number | None


class ModeFacts(TypedDict, total=False):
    """A power mode: its name, its settings, and the tool that set each."""

    name: Text
    settings: ModeSettings
    by: Annotated[dict[Text, Text], Field(max_length=100)]


class Latency(TypedDict, total=False):
    """Latencies that the client of a server saw."""

    mean: Number | None
    p50: Number | None
    p99: Number | None


class Client(TypedDict, total=False):
    """The summary of a server's client."""

    requests: Count | None
    answered: Count | None
    latency_ms: Latency | None
    achieved_per_s: Number | None


class Summary(TypedDict, total=False):
    """The summary of a job."""

    workers: Count | None
    batch_size: Count | None
    epochs: Count | None
    steps: Count | None
    batches: Count | None
    checkpoints: Count | None
    checkpoint_bytes: Count | None
    client: Client | None


class Weights(TypedDict, total=False):
    """The weights that a run has served: those of a training run of the study, or fresh ones."""

    kind: Literal["trained", "fresh"]
    run: Text | None
    why: Long | None
    bytes: Count | None


class Versions(TypedDict):
    """The versions that a job ran with."""

    python: Text
    packages: Annotated[dict[Text, Text | None], Field(max_length=1000)]


@with_config(STRICT)
class RunFacts(TypedDict, total=False):
    """run.json."""

    state: Literal["done", "failed"]
    reason: Long | None
    factors: Factors
    repeat: Count | None
    power_mode: ModeFacts
    dev: Device | None
    summaries: Annotated[Listed[Summary | None], Field(max_length=1000)]
    weights: Weights | None
    versions: Versions | None
    image: Text | None
    began: Number | None
    ended: Number | None
    others_cpu_s: Number | None
    others_over_s: Number | None
    steal_s: Number | None


@with_config(STRICT)
class StudyFacts(TypedDict, total=False):
    """The contents of study.json. Only the number of its `runs` is used here."""

    name: Text
    about: Long | None
    paper: Text | None
    repeats: Count | None
    scale: Number | None
    time_scale: Number | None
    seed: Count | None
    engine: Text | None
    runs: Annotated[Listed[Any], Field(max_length=MOST_RUNS)]


NEEDED = ("model", "where", "mode")
"""The factors that every finished run needs to be compared with another."""


class Budget:
    """The bytes that may still be read from files of one kind."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._left = most

    def read(self, path: Path, kind: Any, limit: int, parts: int = MOST_PARTS) -> Any:
        """Returns the JSON in a file as a value of this kind; None if there is no file.

        Raises BadTrace if it is not a regular file, holds another kind of value, or is too large.
        """
        try:
            data = read_bounded(path, min(limit, self._left))
            self._left -= len(data)
            return parsed(kind, data, parts)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            said = what_is_wrong(error)
            if self._left < limit and isinstance(error, ValueError):
                said = f"{said} (all such files of a study may have {self._most} bytes)"
            raise BadTrace(
                f"{path.name} cannot be used: {said}", "restore it from a copy, or run it again"
            ) from None


def read_study(folder: Path) -> StudyFacts | None:
    """Returns a study's declaration; None if the folder has none. Raises BadTrace if damaged."""
    found: StudyFacts | None = Budget().read(folder / STUDY, StudyFacts, _MOST_STUDY_BYTES)
    return found


def read_run(place: Path, budget: Budget | None = None) -> RunFacts | None:
    """Returns the outcome of the run in this folder; None if it has not ended. Raises BadTrace."""
    found: RunFacts | None = (budget or Budget()).read(
        place / RUN, RunFacts, _MOST_RUN_BYTES, _MOST_RUN_PARTS
    )
    if found is not None and "state" not in found:
        raise BadTrace(f"{RUN} cannot be used: it has no state", "run it again")
    return found


@contextlib.contextmanager
def held(place: Path) -> Iterator[Path]:
    """Yields a path that keeps pointing to this folder even if it is renamed or replaced.

    Raises BadTrace if it is a link, or not a folder.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(place, flags)
    except OSError as error:
        said = "it is a symbolic link" if place.is_symlink() else error.strerror
        raise BadTrace(f"the run's folder cannot be used: {said}", "copy it again") from None
    try:
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def keep(place: Path, name: str, data: bytes) -> None:
    """Writes a file into the folder of a run, so that it need not be made again.

    Writes nothing into a folder of another user, or through a link: the owner could redirect the
    write. If the data cannot be kept, it is made again the next time.
    """
    with as_invoking_user(), held(place) as folder, contextlib.suppress(OSError):
        user = invoking_user()
        if folder.stat().st_uid == (user[0] if user else os.geteuid()):
            write_whole(folder / name, data)
