"""Workers for tests of many traces."""

from collections.abc import Iterator

import dask
import distributed
import pytest

from tests.support.in_memory import tmp_path, tmp_path_factory  # noqa: F401
from tracer.analysis.scale.mapping import SELDOM


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: F811
    """The address of a Dask scheduler with two workers; `local:N` would start some a test."""
    folder = str(tmp_path_factory.mktemp("workers"))
    with (
        dask.config.set(SELDOM),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
            scheduler_kwargs={"local_directory": folder},
        ) as cluster,
    ):
        yield cluster.scheduler_address
