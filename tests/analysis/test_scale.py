"""Many traces: found in folders and at URLs, and one function over them, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pandas as pd
import pytest

from analysis.scale.mapping import map_traces
from analysis.scale.sources import Source, find, opened
from probes.errors import BadTrace, UsageError
from tests.support.traces import make_trace
from tracer.store.packing import pack
from tracer.store.trace import Trace


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
    """What the tests map."""
    return trace.sql("SELECT name, count(*) AS n, sum(dur_ns) AS ns FROM syscalls GROUP BY name")


def names(sources: list[Source]) -> list[str]:
    return [source.name for source in sources]


def test_a_folders_traces_are_found_by_name_however_deep(runs: Path) -> None:
    assert names(find([str(runs)])) == ["a.trace", "b.trace", "deep/er/c.trace"]


def test_traces_named_one_by_one_keep_their_order_and_get_names_of_their_own(runs: Path) -> None:
    twice = [str(runs / "b.trace"), str(runs / "a.trace"), str(runs / "b.trace")]
    assert names(find(twice)) == ["b.trace", "a.trace", "b.trace (2)"]


def test_a_folder_without_traces_is_no_trace(runs: Path) -> None:
    with pytest.raises(BadTrace, match="is no trace, and holds none"):
        find([str(runs / "notes")])


def test_a_pack_is_a_trace_among_the_others(runs: Path) -> None:
    pack(runs / "b.trace", runs / "b.tar.zst")
    sources = find([str(runs)])
    assert names(sources) == ["b.tar.zst", "a.trace", "b.trace", "deep/er/c.trace"]
    packed, _, plain, _ = map_traces(calls, sources)
    pd.testing.assert_frame_equal(packed, plain)


def test_a_link_to_a_folder_of_traces_is_not_followed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(runs)
    with pytest.raises(BadTrace, match="holds none"):
        find([str(tmp_path / "other")])


def test_what_is_not_there_is_said_when_it_is_opened(tmp_path: Path) -> None:
    (source,) = find([str(tmp_path / "none.trace")])
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
    there = find([url])
    assert len(there) == 3
    assert all(source.location.startswith("memory://") for source in there)
    here = map_traces(calls, find([str(runs)]))
    for one, other in zip(map_traces(calls, there), here, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_the_copy_of_a_trace_from_a_url_is_removed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    with opened(find([url])[0]) as trace:
        assert len(calls(trace)) == 1
        assert trace.folder.is_relative_to(tmp_path / "copies")
    assert list((tmp_path / "copies").iterdir()) == []


def test_only_tables_are_copied_from_a_url(url: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a.trace/events/../../evil.parquet", b"x")
    system.pipe("/bucket/a.trace/events/evil.parquet", b"x")
    with opened(find([f"{url}/a.trace"])[0]) as trace:
        assert not (trace.folder / "events" / "evil.parquet").exists()


def test_a_url_that_nothing_can_open_is_a_users_mistake() -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        find(["nosuch://bucket"])


def test_an_empty_url_holds_no_trace() -> None:
    with pytest.raises(BadTrace, match="holds none"):
        find(["memory://nowhere"])


def test_two_processes_give_equal_results_in_the_same_order(runs: Path) -> None:
    sources = find([str(runs)])
    told: list[tuple[int, int]] = []
    apart = map_traces(calls, sources, "local:2", lambda *counts: told.append(counts))
    for one, other in zip(apart, map_traces(calls, sources), strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_error_of_a_trace_is_the_same_from_another_process(runs: Path) -> None:
    damaged = runs / "b.trace" / "events" / "syscalls.parquet"
    damaged.write_bytes(damaged.read_bytes()[:100])
    messages = set()
    for scheduler in (None, "local:1"):
        with pytest.raises(BadTrace, match="is damaged") as error:
            map_traces(calls, find([str(runs)]), scheduler)
        messages.add(str(error.value))
    assert len(messages) == 1


@pytest.mark.parametrize("wrong", ["local:0", "10.0.0.1", "local:x"])
def test_what_is_no_scheduler_is_a_users_mistake(runs: Path, wrong: str) -> None:
    with pytest.raises(UsageError, match="is no scheduler"):
        map_traces(calls, find([str(runs)]), wrong)


def test_a_scheduler_that_does_not_answer_is_said(runs: Path) -> None:
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        map_traces(calls, find([str(runs)]), "tcp://127.0.0.1:1")
