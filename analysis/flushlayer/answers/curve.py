"""The answer of the model `curve`: all capacities, and the capacity that an improvement needs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracer.analysis.flushlayer import one_capacity
from tracer.analysis.flushlayer.answers.paper import PAPERS, known
from tracer.analysis.flushlayer.answers.question import Question, about_input, input_facts
from tracer.analysis.flushlayer.curves import every_capacity as model
from tracer.analysis.flushlayer.policies import find_policy
from tracer.analysis.flushlayer.trace.accesses import Accesses


def answer(question: Question, accesses: Accesses, wanted: float | None = None) -> dict[str, Any]:
    """Returns the facts: the curve, thinned for drawing, and the capacities that improvements need.

    Keys: requests (N), those of `input_facts`, curve (rows of `curve.improvements`), needed (the
    least capacity in pages and bytes that reaches `wanted` and each of the paper's numbers, without
    and with the final drain; None: no capacity reaches it), most, most_with_drain (the largest
    improvements), exact (False: only some capacities were run), every_size (False: a
    needed capacity is the least of those that were run; a smaller one may do), assumptions.
    """
    found, frame = curves(question, accesses)
    targets = sorted({*PAPERS, *(() if wanted is None else (wanted,))})
    return {
        "requests": found.writes,
        **input_facts(accesses),
        "exact": find_policy(question.policy).one_pass,
        "every_size": model.runs_every_size(question.policy, accesses.unique),
        "curve": model.thinned(frame).to_dict("records"),
        "needed": [_needed(frame, target) for target in targets],
        "most": known(frame["improvement"].max()),
        "most_with_drain": known(frame["improvement_with_drain"].max()),
        "assumptions": [
            *one_capacity.assumptions(
                question.medium, question.disk, question.policy, question.buffer
            ),
            *model.about_sizes(question.policy, accesses.unique),
            *about_input(accesses),
        ],
    }


def curves(question: Question, accesses: Accesses) -> tuple[model.Curve, pd.DataFrame]:
    """Returns the curve of a question's policy, and its improvements with these devices."""
    found = model.curve(
        question.policy, accesses.page, accesses.unique, op=question.operations(accesses)
    )
    return found, model.improvements(found, question.medium.write_ns, question.disk.write_ns)


def _needed(frame: pd.DataFrame, wanted: float) -> dict[str, Any]:
    row: dict[str, Any] = {"improvement": wanted}
    for suffix, column in (("", "improvement"), ("_with_drain", "improvement_with_drain")):
        pages = model.smallest_capacity(frame, wanted, column)
        row[f"capacity_pages{suffix}"] = pages
        row[f"capacity_bytes{suffix}"] = None if pages is None else pages * model.PAGE_BYTES
    return row
