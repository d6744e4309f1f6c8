"""The passes of a process through its epochs: with cross-validation, the numbers begin anew."""

from __future__ import annotations


def epoch_passes(marks: str) -> str:
    """Returns SQL for the epochs of each process: pid, epoch, pass (from 1), start and ended.

    `marks` is SQL for the marks of epochs: pid, epoch, start and "end". Marks of one number that
    overlap, such as those of several threads, are one epoch; others are epochs of another pass.
    """
    return f"""
        WITH marked AS (
            SELECT pid, epoch, start, "end", coalesce(max("end") OVER (
                PARTITION BY pid, epoch ORDER BY start, "end"
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) > start, false) AS inside  -- another thread has marked this epoch already
            FROM ({marks})
        ), numbered AS (
            SELECT *, count(*) FILTER (NOT inside) OVER (
                PARTITION BY pid, epoch ORDER BY start, "end" ROWS UNBOUNDED PRECEDING
            ) AS pass
            FROM marked
        )
        SELECT pid, epoch, pass, min(start) AS start, max("end") AS ended
        FROM numbered GROUP BY ALL
    """
