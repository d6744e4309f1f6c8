"""Many traces: found in folders and at URLs, and one function over them, wherever it runs."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import distributed
import fsspec
import pandas as pd
import pytest

from tests.support.traces import make_trace
from tracer.analysis.scale.mapping import connected, map_traces, results
from tracer.analysis.scale.sources import Source, find_traces, opened
from tracer.probes.errors import BadTrace, PermissionMissing, TracerError, UsageError
from tracer.store.packing import pack
from tracer.store.trace import Trace

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three traces, one of them deeper, beside what is none."""
    folder = tmp_path / "runs"
    for number, name in enumerate(("b.trace", "a.trace", "deep/er/c.trace"), 1):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        make_trace(
            folder / name,
            {
                "syscalls": [
                    {"ts": ts, "pid": 1, "tid": 1, "nr": 0, "name": "read", "dur_ns": 5, "ret": 1}
                    for ts in range(number)
                ]
            },
        ).close()
    (folder / "notes").mkdir()
    (folder / "notes" / "readme.txt").write_text("not a trace")
    return folder


def calls(trace: Trace) -> pd.DataFrame:
    """Returns the number of calls by name; the tests map this function over traces."""
    return trace.sql("SELECT name, count(*) AS n, sum(dur_ns) AS ns FROM syscalls GROUP BY name")


def names(sources: list[Source]) -> list[str]:
    return [source.name for source in sources]


def test_a_folders_traces_are_found_by_name_however_deep(runs: Path) -> None:
    assert names(find_traces([str(runs)])) == ["a.trace", "b.trace", "deep/er/c.trace"]


def test_traces_named_one_by_one_keep_their_order_and_get_names_of_their_own(runs: Path) -> None:
    twice = [str(runs / "b.trace"), str(runs / "a.trace"), str(runs / "b.trace")]
    assert names(find_traces(twice)) == ["b.trace", "a.trace", "b.trace (2)"]


def test_a_folder_without_traces_is_no_trace(runs: Path) -> None:
    with pytest.raises(BadTrace, match="is not a trace and contains none"):
        find_traces([str(runs / "notes")])


def test_a_pack_is_a_trace_among_the_others(runs: Path) -> None:
    pack(runs / "b.trace", runs / "b.tar.zst")
    sources = find_traces([str(runs)])
    assert names(sources) == ["b.tar.zst", "a.trace", "b.trace", "deep/er/c.trace"]
    packed, _, plain, _ = map_traces(calls, sources)
    pd.testing.assert_frame_equal(packed, plain)


def test_a_link_to_a_folder_of_traces_is_not_followed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(runs)
    with pytest.raises(BadTrace, match="contains none"):
        find_traces([str(tmp_path / "other")])


@pytest.mark.skipif(os.geteuid() != 0, reason="wants to become nobody")
def test_a_folder_that_may_not_be_read_is_not_passed_over() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "closed").mkdir(mode=0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionMissing, match="closed cannot be read"):
                find_traces([folder])
            with pytest.raises(TracerError), opened(find_traces([f"{folder}/closed"])[0]):
                pass
        finally:
            os.seteuid(0)


def test_a_missing_trace_is_an_error_when_it_is_opened(tmp_path: Path) -> None:
    (source,) = find_traces([str(tmp_path / "none.trace")])
    with pytest.raises(BadTrace), opened(source):
        pass


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    """The same traces at a URL of fsspec's, of which no path of this machine tells."""
    system = fsspec.filesystem("memory")
    system.put(str(runs), "/bucket", recursive=True)
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def test_traces_at_a_url_give_what_they_give_here(runs: Path, url: str) -> None:
    there = find_traces([url])
    assert len(there) == 3
    assert all(source.location.startswith("memory://") for source in there)
    here = map_traces(calls, find_traces([str(runs)]))
    for one, other in zip(map_traces(calls, there), here, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_packs_at_a_url_are_traces_among_the_others(runs: Path, url: str) -> None:
    pack(runs / "b.trace", runs / "b.tar.zst")
    fsspec.filesystem("memory").put(str(runs / "b.tar.zst"), "/bucket/b.tar.zst")
    there = find_traces([url])
    assert names(there) == ["a.trace", "b.tar.zst", "b.trace", "deep/er/c.trace"]
    _, packed, plain, _ = map_traces(calls, there)
    pd.testing.assert_frame_equal(packed, plain)
    (alone,) = find_traces([f"{url}/b.tar.zst"])
    assert alone.name == "b.tar.zst"
    (frame,) = map_traces(calls, [alone])
    pd.testing.assert_frame_equal(frame, plain)


def folder_name(trace: Trace) -> str:
    return trace.folder.name


def test_a_copy_is_called_as_what_it_is_of(runs: Path, url: str) -> None:
    pack(runs / "b.trace", runs / "b.trace.tar.zst")
    sources = find_traces([str(runs / "b.trace.tar.zst"), f"{url}/a.trace"])
    assert map_traces(folder_name, sources) == ["b.trace", "a.trace"]


def test_the_copy_of_a_trace_from_a_url_is_removed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    with opened(find_traces([url])[0]) as trace:
        assert len(calls(trace)) == 1
        assert trace.folder.is_relative_to(tmp_path / "copies")
    assert list((tmp_path / "copies").iterdir()) == []


def test_only_tables_are_copied_from_a_url(url: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a.trace/events/../../evil.parquet", b"x")
    system.pipe("/bucket/a.trace/events/evil.parquet", b"x")
    with opened(find_traces([f"{url}/a.trace"])[0]) as trace:
        assert not (trace.folder / "events" / "evil.parquet").exists()


def test_an_error_tells_of_the_url_and_not_of_a_copy(url: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a.trace/events/syscalls.parquet", b"PAR1")
    with pytest.raises(BadTrace) as error, opened(find_traces([f"{url}/a.trace"])[0]):
        pass
    assert str(error.value).startswith("memory://bucket/a.trace/events/syscalls.parquet is damaged")


def test_a_host_that_does_not_answer_is_one_clear_error() -> None:
    with pytest.raises(BadTrace, match="cannot be read"):
        find_traces(["ftp://127.0.0.1:1/runs"])


def test_a_url_that_nothing_can_open_is_a_users_mistake() -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        find_traces(["nosuch://bucket"])


def test_an_empty_url_holds_no_trace() -> None:
    with pytest.raises(BadTrace, match="contains none"):
        find_traces(["memory://nowhere"])


def test_two_processes_give_equal_results_in_the_same_order(runs: Path) -> None:
    sources = find_traces([str(runs)])
    told: list[tuple[int, int]] = []
    apart = map_traces(calls, sources, "local:2", lambda *counts: told.append(counts))
    for one, other in zip(apart, map_traces(calls, sources), strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("scheduler", [None, "local:1"])
def test_an_error_of_a_trace_names_it_wherever_it_was_read(
    runs: Path, scheduler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = runs / "b.trace" / "events" / "syscalls.parquet"
    damaged.write_bytes(damaged.read_bytes()[:100])
    monkeypatch.chdir(runs.parent)
    with pytest.raises(BadTrace, match=r"^runs/b.trace/events/syscalls.parquet is damaged"):
        map_traces(calls, find_traces(["runs"]), scheduler)


def nap(trace: Trace) -> int:
    if trace.folder.name != "a.trace":
        time.sleep(2)
    return 1


def refuse(trace: Trace) -> None:
    raise UsageError("this cannot be", "do not")


def test_an_error_that_tells_of_no_trace_gets_the_trace_s_name(runs: Path) -> None:
    with pytest.raises(UsageError, match=r"/runs/a.trace: this cannot be; do not$"):
        map_traces(refuse, find_traces([str(runs)]))
    with pytest.raises(UsageError, match=r"^this cannot be; do not$"):
        map_traces(refuse, find_traces([str(runs / "a.trace")]))


def die(trace: Trace) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_that_are_killed_are_told_with_the_trace_that_they_read(runs: Path) -> None:
    with pytest.raises(TracerError, match=r"that read .*/runs/a.trace were killed"):
        map_traces(die, find_traces([str(runs)]), "local:1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[distributed.LocalCluster]:
    """A Dask scheduler that somebody else runs, with a worker that was started elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path),
        scheduler_kwargs={"local_directory": str(tmp_path)},
    ) as made:
        monkeypatch.chdir(tmp_path)
        yield made


def test_the_workers_of_an_address_give_equal_results(
    runs: Path, cluster: distributed.LocalCluster
) -> None:
    sources = find_traces(["runs"])
    there = map_traces(calls, sources, cluster.scheduler_address)
    for one, other in zip(there, map_traces(calls, sources), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_scheduler_that_goes_away_is_said(runs: Path, cluster: distributed.LocalCluster) -> None:
    each = results(nap, find_traces([str(runs)]), cluster.scheduler_address)
    assert next(each) == 1
    cluster.close()
    with pytest.raises(TracerError, match="was lost"):
        list(each)


def test_workers_leave_nothing_behind(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spare"))
    (tmp_path / "spare").mkdir()
    assert len(map_traces(calls, find_traces([str(runs)]), "local:1")) == 3
    assert list((tmp_path / "spare").iterdir()) == []


def test_nobody_else_can_give_our_workers_work() -> None:
    """Dask does what it is asked: here only who has the certificate may ask."""
    with connected("local:1") as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        port = int(address.rpartition(":")[2])
        with (
            pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"),
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain) as stranger,
        ):
            stranger.recv(1)


def test_more_workers_than_traces_are_not_started(runs: Path) -> None:
    with connected("local:23", most=2) as client:
        assert len(client.scheduler_info()["workers"]) == 2
        first, *_ = map_traces(calls, find_traces([str(runs)]), client)
    pd.testing.assert_frame_equal(first, map_traces(calls, find_traces([str(runs)]))[0])


@pytest.mark.parametrize(
    "wrong", ["local:0", "10.0.0.1", "local:x", "nonsense", "", "tcp://", "://x", "nosuch://x:1"]
)
def test_an_address_that_is_not_a_scheduler_is_a_usage_error(runs: Path, wrong: str) -> None:
    with pytest.raises(UsageError, match="is not a scheduler"):
        map_traces(calls, find_traces([str(runs)]), wrong)


def test_a_scheduler_that_does_not_answer_is_said(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.analysis.scale.mapping._CONNECT_S", 1)
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        map_traces(calls, find_traces([str(runs)]), "tcp://127.0.0.1:1")
