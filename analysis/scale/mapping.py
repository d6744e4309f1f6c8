"""One function of a trace over many traces: in this process, in others, or on a cluster.

Whichever it is, it is the same function, and results come in the order of the traces: what is
made of them is the same, too.
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

from analysis.scale.sources import Source, naming, opened
from probes.errors import FeatureMissing, TracerError, UsageError
from tracer.store.trace import Trace

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

Result = TypeVar("Result")
Each = Callable[[Trace], Result] | Sequence[Callable[[Trace], Result]]
"""A function for all traces, or one for each."""

_LOCAL = re.compile(r"local(?::(?P<workers>[1-9]\d{0,3}))?")
_ADDRESS = re.compile(r"(tcp|tls|wss?|ucx)://(\[[\da-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?")
_CONNECT_S = 10
_NEEDS = "pip install 'traintrace[cluster]'"


def map_traces(
    function: Each[Result],
    sources: Sequence[Source],
    scheduler: str | Client | None = None,
    done: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """`function` of each trace, in the order of the sources; otherwise as `results`."""
    return list(results(function, sources, scheduler, done))


def results(
    function: Each[Result],
    sources: Sequence[Source],
    scheduler: str | Client | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Iterator[Result]:
    """`function` of one trace after the other, in the order of the sources; or one for each.

    `scheduler`: None, here, one after the other, each with all CPUs; `local` or `local:N`, in N
    processes on this machine (its CPUs), each with one CPU; else the address of a Dask scheduler,
    whose workers have this package and see the same paths; or what `connected` gave. There
    `function` must be one that can be imported, and it gets a trace that uses one CPU. `done` is
    told how many of how many are.

    An error of a trace is raised as it is; of one among many it names the trace. Raises UsageError
    for an address that does not answer, FeatureMissing without Dask.
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
    # Elsewhere the current folder is another one.
    asked = list(sources) if here else [source.absolute() for source in sources]
    futures = client.map(_outcome, asked, functions, cpus=1, pure=False)
    stack.callback(client.cancel, futures)
    # Once a result is here, no worker need keep it.
    return (_result(futures.pop(0), source) for source in sources)


def _outcome(
    source: Source, function: Callable[[Trace], Result], cpus: int | None = None
) -> Result | TracerError:
    """The result, or the error of the trace: one that a worker raises, Dask logs at length."""
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
            "the Dask scheduler went away while it was at work", "see that it runs, and try again"
        )
    except KilledWorker:
        return TracerError(
            f"the workers that read {source.location} were killed, again and again",
            "see whether there is memory for so many: --scheduler local:1",
        )


@contextlib.contextmanager
def connected(scheduler: str, most: int | None = None) -> Iterator[Client]:
    """Workers as `results` describes them, for as long as they are needed.

    `most`: more of them than traces would have nothing to do. Raises UsageError for what is no
    scheduler or does not answer, FeatureMissing without Dask.
    """
    local = _LOCAL.fullmatch(scheduler)
    if local is None and not _ADDRESS.fullmatch(scheduler):
        raise UsageError(
            f"{scheduler!r} is no scheduler", "give local, local:N or an address: tcp://HOST:8786"
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
    """Workers on this machine, that nobody else may talk to: they do what they are told.

    A trace's memory is bounded by DuckDB's, so that Dask need not pause workers for theirs. What
    they write to disk goes with them, however they end. The folder is nobody else's: Dask looks for
    modules there.
    """
    import distributed

    try:
        security = distributed.Security.temporary()
    except ImportError:
        raise FeatureMissing("workers need the package cryptography", _NEEDS) from None
    with (
        tempfile.TemporaryDirectory(prefix="tracer-", ignore_cleanup_errors=True) as folder,
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            security=security,
            dashboard_address="127.0.0.1:0",  # of any number, since another may be taken
            scheduler_kwargs={"dashboard": False, "local_directory": folder, "allowed_failures": 1},
            silence_logs=logging.CRITICAL,
            local_directory=folder,
            env={"TMPDIR": folder},
            preload=["analysis.scale.worker"],
            config={"distributed.worker.profile.enabled": False},
        ) as cluster,
    ):
        try:
            yield cluster
        except BaseException:
            _kill_workers(cluster)
            raise


def _kill_workers(cluster: LocalCluster) -> None:
    """End workers in the middle of their work, which Dask would wait for for seconds."""
    from distributed.core import Status

    # What it was about to send them cannot be sent, and nobody need know.
    logging.getLogger("distributed.batched").setLevel(logging.CRITICAL)
    for nanny in cluster.workers.values():
        nanny.status = Status.closing_gracefully  # so that it does not start another one
        if nanny.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)
