"""The kinds of stacks that a recording has, and the reasons for those that it lacks."""

from __future__ import annotations

from collections.abc import Collection

from tracer.probes.errors import FeatureMissing, TracerError
from tracer.probes.events.sched import STACKS
from tracer.session.options import Listener
from tracer.store.manifest_parts import StacksFacts

KERNEL, PYTHON = "kernel", "python"
NAMES = {KERNEL: "kernel", PYTHON: "Python"}
"""The kinds as messages have them."""


def kinds(
    events: Collection[str],
    unnamed: TracerError | None,
    no_looks: TracerError | None,
    listener: Listener,
) -> StacksFacts:
    """Returns the kinds of stacks of a recording, and tells the listener what it lacks.

    `events` are the recorded ones, `unnamed` the reason for which kernel functions have no names,
    `no_looks` that for which nobody looks at Python stacks. Raises FeatureMissing if there are no
    stacks at all.
    """
    missing: dict[str, TracerError] = {}
    if unnamed is not None:
        missing[KERNEL] = unnamed
    elif not any(name in events for name in STACKS):
        missing[KERNEL] = FeatureMissing(
            "this kernel cannot record them with this backend", "give another one (--backend)"
        )
    if no_looks is not None:
        missing[PYTHON] = no_looks
    if len(missing) == len(NAMES):
        told = " and ".join(
            f"no {NAMES[kind]} stacks ({why.what})" for kind, why in missing.items()
        )
        raise FeatureMissing(f"--stacks can record {told}", missing[PYTHON].mend)
    for kind, why in missing.items():
        listener.without_stacks(NAMES[kind], why)
    found: StacksFacts = {"kinds": [], "missing": {k: str(why) for k, why in missing.items()}}
    if KERNEL not in missing:
        found["kinds"].append("kernel")
    if PYTHON not in missing:
        found["kinds"].append("python")
    return found
