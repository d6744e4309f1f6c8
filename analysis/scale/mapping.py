"""Mapping of one function over many traces: in this process, in others, or on a cluster.

The function is the same everywhere, and the results come in the order of the traces. Everything
derived from the results is therefore the same, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tracer.analysis.scale.sources import Source, naming, opened
from tracer.probes.errors import FeatureMissing, TracerError, UsageError
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

Result = TypeVar("Result")
Each = Callable[[Trace], Result] | Sequence[Callable[[Trace], Result]]
"""One function for all traces, or one function per trace."""

_LOCAL = re.compile(r"local(?::(?P<workers>[1-9]\d{0,3}))?")
_ADDRESS = re.compile(r"(tcp|tls|wss?|ucx)://(\[[\da-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?")
SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Settings with which Dask's processes seldom look at themselves. They would 50 times a second."""
_CONNECT_S = 10
_NEEDS = "pip install 'traintrace[cluster]'"


def map_traces(
    function: Each[Result],
    sources: Sequence[Source],
    scheduler: str | Client | None = None,
    done: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Returns the list of `results`."""
    return list(results(function, sources, scheduler, done))


def results(
    function: Each[Result],
    sources: Sequence[Source],
    scheduler: str | Client | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Iterator[Result]:
    """Yields the result of `function` for each trace, in the order of the sources.

    `function` may also be a sequence with one function per trace. `scheduler`: None runs them in
    this process, one after the other, each with all CPUs. `local` or `local:N` runs them in N
    processes on this machine (default: one per CPU), each with one CPU. Other strings are the
    address of a Dask scheduler whose workers have this package and see the same paths. A client
    that `connected` yielded also works. With a scheduler, `function` must be importable, and it
    gets a trace that uses one CPU. `done` is called with the number of finished traces and the
    number of all traces.

    An error of a trace is raised; if there are several traces, it names the trace. Raises
    UsageError for an address that does not answer, FeatureMissing without Dask.
    """
    functions = [function] * len(sources) if callable(function) else list(function)
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            outcomes: Iterator[Result | TracerError] = map(_outcome, sources, functions)
        else:
            outcomes = _there(functions, sources, scheduler, stack)
        for number, (source, outcome) in enumerate(zip(sources, outcomes, strict=True), 1):
            if isinstance(outcome, TracerError):
                raise naming(source, outcome) if len(sources) > 1 else outcome
            if done:
                done(number, len(sources))
            yield outcome


def _there(
    functions: Sequence[Callable[[Trace], Result]],
    sources: Sequence[Source],
    scheduler: str | Client,
    stack: contextlib.ExitStack,
) -> Iterator[Result | TracerError]:
    if isinstance(scheduler, str):
        here = _LOCAL.fullmatch(scheduler) is not None
        client = stack.enter_context(connected(scheduler, len(sources)))
    else:
        here, client = False, scheduler
    # The current folder of workers elsewhere is a different one.
    asked = list(sources) if here else [source.absolute() for source in sources]
    futures = client.map(_outcome, asked, functions, cpus=1, pure=False)
    stack.callback(client.cancel, futures)
    # Popping a future lets its worker drop the result.
    return (_result(futures.pop(0), source) for source in sources)


def _outcome(
    source: Source, function: Callable[[Trace], Result], cpus: int | None = None
) -> Result | TracerError:
    """Returns the result, or the trace's error: Dask would log a raised error at length."""
    try:
        with opened(source) as trace:
            if cpus is not None:
                trace.use_cpus(cpus)
            return function(trace)
    except TracerError as error:
        return error


def _result(future: Any, source: Source) -> Any:
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except (CancelledError, OSError):
        return TracerError(
            "the connection to the Dask scheduler was lost",
            "check that the scheduler runs, and try again",
        )
    except KilledWorker:
        return TracerError(
            f"the workers that read {source.location} were killed repeatedly",
            "memory may be short: try fewer workers, --scheduler local:1",
        )


@contextlib.contextmanager
def connected(scheduler: str, most: int | None = None) -> Iterator[Client]:
    """Connects to a scheduler as `results` describes it, or starts local workers.

    `most`: most local workers to start, for example the number of traces. Raises UsageError for a
    string that is no scheduler or an address that does not answer, FeatureMissing without Dask.
    """
    local = _LOCAL.fullmatch(scheduler)
    if local is None and not _ADDRESS.fullmatch(scheduler):
        raise UsageError(
            f"{scheduler!r} is not a scheduler",
            "give local, local:N or an address: tcp://HOST:8786",
        )
    try:
        import distributed
    except ImportError:
        raise FeatureMissing("--scheduler needs Dask, which is not installed", _NEEDS) from None
    with contextlib.ExitStack() as stack:
        where: Any = scheduler
        if local is not None:
            workers = int(local["workers"]) if local["workers"] else len(os.sched_getaffinity(0))
            where = stack.enter_context(_cluster(workers if most is None else min(workers, most)))
        try:
            client = distributed.Client(where, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            raise UsageError(
                f"no Dask scheduler answers at {scheduler}: {line}", "start one: dask scheduler"
            ) from None
        yield stack.enter_context(client)


@contextlib.contextmanager
def _cluster(workers: int) -> Iterator[LocalCluster]:
    """Starts workers on this machine that nobody else can connect to, because they run any code.

    DuckDB bounds the memory of a trace, so Dask need not pause workers to limit memory. Everything
    that the workers write to disk lies in one folder, which is removed however they end. The folder
    is private, because Dask imports modules from it.
    """
    import dask
    import distributed

    try:
        security = distributed.Security.temporary()
    except ImportError:
        raise FeatureMissing("workers need the package cryptography", _NEEDS) from None
    with (
        tempfile.TemporaryDirectory(prefix="tracer-", ignore_cleanup_errors=True) as folder,
        dask.config.set(SELDOM),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            security=security,
            dashboard_address="127.0.0.1:0",  # any free port, because a fixed one may be in use
            scheduler_kwargs={"dashboard": False, "local_directory": folder, "allowed_failures": 1},
            silence_logs=logging.CRITICAL,
            local_directory=folder,
            env={"TMPDIR": folder},
            preload=["tracer.analysis.scale.worker"],
            config=SELDOM,
        ) as cluster,
    ):
        try:
            yield cluster
        except BaseException:
            _kill_workers(cluster)
            raise


def _kill_workers(cluster: LocalCluster) -> None:
    """Kills workers in the middle of their work. Dask would wait several seconds for them."""
    from distributed.core import Status

    # Messages to the killed workers fail; their errors are not shown.
    logging.getLogger("distributed.batched").setLevel(logging.CRITICAL)
    for nanny in cluster.workers.values():
        nanny.status = Status.closing_gracefully  # keeps the nanny from starting a new worker
        if nanny.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)
