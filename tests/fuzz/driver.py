"""Runs a target's inputs in workers, and collects findings.

An input may be read, or refused with a TracerError. Anything else is a finding: another exception,
more memory or time than `tests.support.budget` allows, or a crash. A worker runs many inputs. If an
input ends it, a new worker continues after that input.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.target import Target
from tests.fuzz.worker import SEEDS, Plan, Worker
from tests.support.in_memory import PLACE

_MOST_OF_A_KIND = 3


@dataclass(frozen=True)
class Finding:
    """An input with a wrong result, and the description of that."""

    target: str
    what: str
    trace: str
    data: bytes

    def save(self, folder: Path) -> None:
        """Writes the input to a file, and the description and traceback beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.target}-{hashlib.sha256(self.data).hexdigest()[:12]}"
        path.write_bytes(self.data)
        path.with_suffix(".txt").write_text(f"{self.what}\n\n{self.trace}\n")


@dataclass
class Report:
    """The numbers of inputs of a target that were read, refused, or wrong."""

    target: str
    inputs: int = 0
    refused: int = 0
    read: int = 0
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    """The number of findings at each place."""
    findings: list[Finding] = field(default_factory=list)
    """The first few of each place."""

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0.0
        return (
            f"{self.target:18} {self.inputs:9} inputs {self.refused:9} refused {self.read:9} read"
            f" {sum(self.kinds.values()):6} findings of {len(self.kinds)} kinds {rate:.0f}/s"
        )


def fuzz(
    chosen: Target,
    seed: int = 0,
    inputs: int | None = None,
    seconds: float | None = None,
    keep: Path | None = None,
    data: bytes | None = None,
) -> Report:
    """Runs inputs of a target up to a number or a time in seconds, or only `data`.

    `keep`: a folder for the inputs of findings.
    """
    last = 1 if data is not None else inputs
    report = Report(chosen.name)
    begun = time.monotonic()
    number = 0
    # Files are made and removed for each input.
    with tempfile.TemporaryDirectory(dir=PLACE) as scratch:
        while last is None or number < last:
            left = None if seconds is None else begun + seconds - time.monotonic()
            if left is not None and left <= 0 and number:
                break
            seeds = tuple(chosen.seeds)
            plan = Plan(chosen.name, seed, number, last, left, data, seeds)
            worker = Worker(plan, Path(scratch))
            for trouble in worker.troubles():
                wrong = data if data is not None else _input(chosen, seed, trouble.number)
                alone = data is not None or trouble.number <= SEEDS
                if trouble.ended and not alone and not _ends_again(chosen, wrong, scratch):
                    continue  # this input was the first to compile something
                count = report.kinds[trouble.place] = report.kinds.get(trouble.place, 0) + 1
                if count > _MOST_OF_A_KIND:
                    continue
                finding = Finding(chosen.name, trouble.what, trouble.trace, wrong)
                report.findings.append(finding)
                if keep is not None:
                    finding.save(keep)
            number, refused, read = worker.progress
            report.refused += refused
            report.read += read
            if number == SEEDS:
                number = 0
                break
            if worker.crashed:
                number += 1
            elif seconds is not None:
                break
    report.inputs = number
    report.seconds = time.monotonic() - begun
    return report


def _input(chosen: Target, seed: int, number: int) -> bytes:
    return chosen.seeds[number] if number <= SEEDS else chosen.input(seed, number)


def _ends_again(chosen: Target, data: bytes, scratch: str) -> bool:
    """Runs an input that ended a worker alone in a new one; true if it ends that one, too."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        worker = Worker(Plan(chosen.name, 0, 0, 1, None, data), Path(folder))
        ended = [trouble.ended for trouble in worker.troubles()]
    return any(ended)
