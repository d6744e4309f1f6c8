"""Sampled counters: by how much they grow in a window."""

from __future__ import annotations

from tracer.analysis.findings.window import Window

_MOST = 0.9
"""Share of the time between two readings that must lie in a window's stage, so that it counts.

Stages one right after the other may leave out a moment between two readings.
"""


def growth(names: tuple[str, ...], over: Window | None) -> str:
    """Returns SQL for the growth of counters in a window: target, instance, name, grown, ns.

    `ns` is the time in which the counter grew by `grown`: that between readings in the window's
    stage, so an evaluation between two trainings is left out. Without a window it is the time of
    all samples. A counter that begins anew grows by nothing. Needs the table samples, and the view
    `phase_times` if the window has a stage.
    """
    listed = ", ".join(f"'{name}'" for name in names)
    readings = (
        "(SELECT target, instance, name, ts, lead(ts) OVER of_counter::HUGEINT - ts AS apart,"
        " lead(value) OVER of_counter - value AS more FROM samples"
        f" WHERE name IN ({listed}) AND isfinite(value)"
        " WINDOW of_counter AS (PARTITION BY target, instance, name ORDER BY ts, value))"
    )
    within = "apart > 0 AND more >= 0"
    if over is not None:
        readings = over.inside(readings, "apart")
        within += f" AND inside >= {_MOST} * apart"
    return (
        "(SELECT target, instance, name, sum(more) AS grown, sum(apart) AS ns"
        f" FROM {readings} WHERE {within} GROUP BY target, instance, name)"
    )
