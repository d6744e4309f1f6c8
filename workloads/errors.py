"""The errors of a job that its user can fix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tracer.probes.errors import ExitCode, TracerError

REACHED = "killed: the memory limit was reached"
"""The reason for the failure of a job that the kernel killed for its cgroup's limit."""
MEND_EXTRA = "pip install 'traintrace[workloads]'"
MEND_WRITE = "free some space, or name another --output folder"


class JobError(TracerError):
    """A mistake in a job's command line or study. Exits with ExitCode.USAGE."""

    exit_code = ExitCode.USAGE


class BrokenJobError(JobError):
    """A failure of a running job, not a mistake in its command line. Exits with FAILURE."""

    exit_code = ExitCode.FAILURE


class RefusedJobError(JobError):
    """A right that this user lacks. Exits with ExitCode.NO_PERMISSION."""

    exit_code = ExitCode.NO_PERMISSION


class MissingFeatureError(JobError):
    """A program, package or daemon that a job lacks. Exits with FEATURE_MISSING."""

    exit_code = ExitCode.FEATURE_MISSING


def kind_of(status: int) -> type[JobError]:
    """Returns the class of the error with which a process of the same job has exited."""
    kinds = (RefusedJobError, MissingFeatureError)
    return next((kind for kind in kinds if kind.exit_code == status), JobError)


def require_torch() -> None:
    """Raises MissingFeatureError without PyTorch, which each job needs; does not import it."""
    if find_spec("torch") is None:
        raise MissingFeatureError("PyTorch is not installed", MEND_EXTRA)


def took_too_long(longest_s: float | None) -> str:
    """Returns the reason for the failure of a job that exceeded its time."""
    return f"killed: it took longer than {longest_s:g} s; a job with too little memory may do so"


@contextmanager
def explained(what: str, mend: str) -> Iterator[None]:
    """Turns an OSError of the block into a JobError with `what`, the system's reason and `mend`."""
    try:
        yield
    except OSError as error:
        kind = RefusedJobError if isinstance(error, PermissionError) else JobError
        raise kind(f"{what}: {error.strerror or error}", mend) from error
