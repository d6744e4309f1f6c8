"""Findings about page faults, by file, function and phase."""

from __future__ import annotations

from tracer.analysis.findings.finding import Finding, ask, file_name, finding, of_events, percent
from tracer.analysis.findings.finding import name as named
from tracer.analysis.findings.window import Scope, Window, whole
from tracer.analysis.views.in_phase import with_phase
from tracer.store.trace import Trace

_TARGET = (Scope.TARGET,)


def faults(trace: Trace) -> list[Finding]:
    """Returns the file and stage with the most major faults, and the code with the most faults.

    A major fault waits for a disk. For major faults, the file is the one mapped at the faulting
    address. For all faults, file and function are those of the faulting instruction. There is no
    finding if no file is known. Needs the table page_faults. The table phases gives the stage.
    """
    over = whole(trace)
    if over is None:
        return []
    return [*_major(trace, over), *_any(trace, over)]


def _major(trace: Trace, over: Window) -> list[Finding]:
    view = with_phase(trace, "page_faults")
    answer = ask(
        trace,
        "SELECT 100 * count(*) / sum(count(*)) OVER () AS value, file, stage, count(*) AS faults,"
        " sum(count(*)) OVER () AS of, sum(count(stage)) OVER () AS staged"
        f" FROM {view} WHERE kind = 'major' GROUP BY file, stage"
        " QUALIFY file IS NOT NULL ORDER BY count(*) DESC, file, stage LIMIT 1",
    )
    if answer is None:
        return []
    where = named(answer.row["stage"], "")
    during = f" in {where}" if where else " in no stage" * bool(answer.count("staged"))
    sentence = (
        f"{percent(answer.value)} of major faults read {file_name(answer.row['file'])}{during}"
        f" ({answer.count('faults'):,} of {answer.count('of'):,}): its pages were not in memory"
        " and had to be read from disk"
    )
    weight = of_events(answer.value / 100, answer.number("of"))
    return [finding(trace, over, _TARGET, "major faults", answer, sentence, "%", weight)]


def _any(trace: Trace, over: Window) -> list[Finding]:
    answer = ask(
        trace,
        "SELECT 100 * n / sum(n) OVER () AS value, ip_file, symbol, n AS faults, sum(n) OVER ()"
        " AS of FROM (SELECT ip_file, symbol, count(*) AS n FROM page_faults GROUP BY ALL)"
        " QUALIFY ip_file IS NOT NULL ORDER BY n DESC, ip_file, symbol LIMIT 1",
    )
    if answer is None:
        return []
    symbol, file = answer.row["symbol"], answer.row["ip_file"]
    place = file_name(file)
    where = f"{named(symbol)} of {place}" if symbol is not None and symbol == symbol else place
    sentence = (
        f"{percent(answer.value)} of all page faults are taken in {where}"
        f" ({answer.count('faults'):,} of {answer.count('of'):,})"
    )
    weight = of_events(answer.value / 100, answer.number("of"))
    return [finding(trace, over, _TARGET, "page faults", answer, sentence, "%", weight)]
