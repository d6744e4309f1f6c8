"""One function of a trace over many traces: in this process, in others, or on a cluster.

Whichever it is, it is the same function, and results come in the order of the traces: what is
made of them is the same, too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.scale.sources import Source, opened
from probes.errors import FeatureMissing, UsageError
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from distributed import Client

Result = TypeVar("Result")

_LOCAL = re.compile(r"local(?::(?P<workers>[1-9]\d{0,3}))?")
_CONNECT_S = 10


def map_traces(
    function: Callable[[Trace], Result],
    sources: Sequence[Source],
    scheduler: str | None = None,
    done: Callable[[int], None] | None = None,
) -> list[Result]:
    """`function` of each trace, in the order of the sources.

    `scheduler`: None, here, one after the other, each with all CPUs; `local` or `local:N`, in N
    processes on this machine (its CPUs), each with one CPU; else the address of a Dask scheduler,
    whose workers have this package and see the same paths. There `function` must be one that can
    be imported, and it gets a trace that uses one CPU. `done` is told how many are.

    An error of a trace is raised as it is. Raises UsageError for an address that does not
    answer, FeatureMissing without Dask.
    """
    if scheduler is None:
        results = []
        for number, source in enumerate(sources, 1):
            with opened(source) as trace:
                results.append(function(trace))
            if done:
                done(number)
        return results
    with _client(scheduler) as client:
        futures = client.map(_apply, [function] * len(sources), sources, pure=False)
        try:
            results = []
            for number, future in enumerate(futures, 1):
                results.append(future.result())
                if done:
                    done(number)
            return results
        finally:
            client.cancel(futures)


def _apply(function: Callable[[Trace], Result], source: Source) -> Result:
    with opened(source) as trace:
        trace.use_cpus(1)
        return function(trace)


@contextlib.contextmanager
def _client(scheduler: str) -> Iterator[Client]:
    try:
        import distributed
    except ImportError:
        raise FeatureMissing(
            "--scheduler needs Dask, which is not installed", "pip install 'traintrace[cluster]'"
        ) from None
    local = _LOCAL.fullmatch(scheduler)
    if local is None and "://" not in scheduler:
        raise UsageError(
            f"{scheduler!r} is no scheduler", "give local, local:N or an address: tcp://HOST:8786"
        )
    with contextlib.ExitStack() as stack:
        where: Any = scheduler
        if local is not None:
            workers = int(local["workers"]) if local["workers"] else None
            where = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None
                )
            )
        try:
            client = distributed.Client(where, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            raise UsageError(
                f"no Dask scheduler answers at {scheduler}: {line}", "start one: dask scheduler"
            ) from None
        yield stack.enter_context(client)
