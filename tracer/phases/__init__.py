"""Marks the phases of a training job, so that kernel events can be related to them.

    from tracer import phases

    with phases.phase("train"):
        for epoch in range(epochs):
            for step, batch in enumerate(loader):
                with phases.phase("step", epoch=epoch, step=step):
                    with phases.phase("forward"):
                        ...

This folder needs only the standard library and can be copied into any container. A mark is one
store into memory that the kernel keeps (a shared file mapping). It makes no system call and
survives SIGKILL. Without a recording, a mark costs one attribute test.

A recording passes its marks folder to the process in the environment variable TRACER_MARKS.
To attach to a process later (`tracer record -p`), start it with TRACER_MARKS=DIR and a folder of
your choice: the recorder finds the folder in the process's environment.
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
