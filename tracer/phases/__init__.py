"""Mark what a training job is doing, so that kernel events can be laid against it.

    from tracer import phases

    with phases.phase("train"):
        for epoch in range(epochs):
            for step, batch in enumerate(loader):
                with phases.phase("step", epoch=epoch, step=step):
                    with phases.phase("forward"):
                        ...

Standard library only: this folder can be copied into any container. A mark is one store into
memory that the kernel keeps (a shared file mapping), so it makes no system call and survives
SIGKILL. Where no recording runs, a mark costs one attribute test.

A recording hands its marks folder to the process in the environment variable TRACER_MARKS.
A process that is to be attached to later (`tracer record -p`) can be started with
TRACER_MARKS=DIR of your choice: the recorder finds the folder in the process's environment.
"""

from .marks import (
    MARKS_ENV,
    NAMES,
    Phase,
    begin,
    disable,
    enable,
    enabled,
    end,
    phase,
)

__all__ = ["MARKS_ENV", "NAMES", "Phase", "begin", "disable", "enable", "enabled", "end", "phase"]
