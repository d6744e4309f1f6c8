"""`tracer predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracer.analysis.cli.many import opened_here
from tracer.analysis.cli.page_output import Force, Html, check_output, write_page
from tracer.cli.main import verb
from tracer.cli.opening import AsJson

if TYPE_CHECKING:
    from tracer.analysis.memory.answer import MemoryAnswer
    from tracer.store.trace import Trace


@verb()
def predict(
    trace: Annotated[
        str, typer.Argument(metavar="T", help="Trace, pack or URL.", show_default=False)
    ],
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE,..",
            help="Memory limits to predict the reads with, e.g. 512M,1G.",
            show_default=False,
        ),
    ],
    own_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of each target that is not page cache, or is shared memory."
            " Default: that of the samples of its cgroup (-a: of the machine); 0 without samples.",
        ),
    ] = None,
    read_ahead: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Read-ahead of the kernel; 0: none."
            " Default: that of the recorded device, or 128K.",
        ),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Pages of files that were in memory before the recording stay there, and take no"
            " room, as libraries that other jobs use. Default: memory has no page of a file.",
        ),
    ] = False,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="All targets have each limit together."
            " Default: as in the recording; apart, if it had no limits.",
        ),
    ] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Each target has each limit for itself.")
    ] = False,
    html: Html = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Predict what a training reads from disk with another amount of memory.

    The page cache of each target is simulated with its recorded accesses: by the
    kernel's rules (its two lists of pages, and its read-ahead), by plain LRU, by
    the best possible choice, and by a cache that keeps what it has first taken
    in. The answer has the data read in each epoch, the error of the kernel's
    model on the recording itself, and the least memory with which nothing is read
    twice. In a recording of the whole machine, all processes share one page
    cache.

    The kernel reclaims by statistics that it brings up to date every 2 s, by a
    clock that the recording does not tell. The answer has the least and the most
    that its model reads with five such clocks, if they differ.

    Targets that shared a memory limit in the recording, such as containers of a
    pod or processes of a cgroup, share each limit of the prediction. With
    --shared, all targets do; with --apart, none.

    The trace needs the events of the page cache:
    tracer record -e default,page_cache. If the kernel logs no accesses (before
    Linux 6.10), they are inferred from system calls and page faults; the answer
    says so, and what share of the reads it lacks.

    [bold]Examples[/bold]

      sudo tracer record -e default,page_cache --container job -o run.trace

      tracer predict run.trace --memory 512M,1G,2G

      tracer predict run.trace --memory 1G --read-ahead 4M --json

      tracer predict run.trace --memory 1G --warm

      tracer predict two.trace --memory 1G,2G --shared

      tracer predict run.trace --memory 256M,512M,1G,2G --html memory.html
    """
    from tracer.analysis.cli.predict_text import print_answer
    from tracer.analysis.memory.answer import answer_memory
    from tracer.analysis.scale.sources import find_traces
    from tracer.probes.errors import UsageError

    if shared and apart:
        raise UsageError("--shared and --apart cannot be combined", "give one of them")
    sources = find_traces([trace])
    if len(sources) > 1:
        raise UsageError(f"{trace} holds {len(sources)} traces", "name one of them")
    if html is not None:
        check_output(html, force, json)
    with opened_here(sources[0]) as opened:
        together = shared if shared or apart else None
        amounts, own, ahead = _sizes(opened, memory, own_memory, read_ahead)
        found = answer_memory(opened, amounts, own, ahead, together, warm)
    if html is not None:
        from tracer.analysis.page.memory import memory_page

        write_page(memory_page(sources[0].location, found), html)
    if json:
        from tracer.store.trace import dump

        typer.echo(dump({"trace": sources[0].location, **_as_json(found)}))
    elif html is None:
        print_answer(sources[0].location, found)


def _sizes(
    trace: Trace, memory: str, own_memory: str | None, read_ahead: str | None
) -> tuple[list[int], int | None, int | None]:
    """Returns the bytes of the options. Raises UsageError for one that holds no page."""
    from tracer.probes.errors import UsageError
    from tracer.sizes import parse_page_size
    from tracer.store.manifest import page_bytes

    page = page_bytes(trace.manifest)
    amounts = sorted(
        {parse_page_size(part, page, "--memory", "give e.g. 512M") for part in memory.split(",")}
    )
    if amounts[0] == 0:
        raise UsageError("a target without memory cannot run", "give --memory more than 0 bytes")

    def other(given: str | None, option: str, example: str) -> int | None:
        mend = f"give e.g. {example}, or 0 for none"
        return None if given is None else parse_page_size(given, page, option, mend)

    return (
        amounts,
        other(own_memory, "--own-memory", "300M"),
        other(read_ahead, "--read-ahead", "128K"),
    )


def _as_json(found: MemoryAnswer) -> dict[str, Any]:
    rows = found.reads.astype(object).where(found.reads.notna(), None)
    return {
        "reads": rows.to_dict("records"),
        "sums": found.sums.to_dict("records"),
        "shared": found.shared,
        "recorded_shared": found.recorded_shared,
        "other_cgroups": found.other_cgroups,
        "own_bytes": found.own_bytes,
        "own_median_bytes": found.own_median_bytes,
        "without_shared": found.without_shared,
        "limit_bytes": found.limit_bytes,
        "clocks_s": [None if clock is None else clock / 1e9 for clock in found.clocks_ns],
        "error": found.error,
        "error_low": found.error_low,
        "error_high": found.error_high,
        "enough_bytes": found.enough_bytes,
        "read_ahead_bytes": found.read_ahead_bytes,
        "page_bytes": found.page_bytes,
        "lossy": found.lossy,
        "warm_pages": found.warm_pages,
        "staying_pages": found.staying_pages,
        "reading_s": None if found.reading_ns is None else found.reading_ns / 1e9,
        "mapped_share": found.mapped_share,
        "mapped_bytes": found.mapped_bytes,
        "marked_together": found.marked_together,
        "inferred": found.knowledge.inferred,
        "unknown_share": found.knowledge.unknown,
    }
