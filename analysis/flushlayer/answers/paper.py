"""The answer of the model `paper` (Park & Bahn 2023, section 5) at one capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracer.analysis.flushlayer import one_capacity
from tracer.analysis.flushlayer.answers.question import Capacity, Question, about_input, input_facts
from tracer.analysis.flushlayer.curves.every_capacity import (
    PAGE_BYTES,
    about_sizes,
    curve,
    improvements,
    runs_every_size,
    smallest_capacity,
    thinned,
)
from tracer.analysis.flushlayer.trace.accesses import Accesses, Identity
from tracer.digits import show_digits
from tracer.sizes import show_bound, show_share

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_CURVE_ROWS = 200
_MOST_DIGITS = 13
"""Decimals of a percentage below which numbers of 64 bits are not exact."""
PAPERS = (0.77, 0.82, 0.90)
"""The least, the mean and the largest improvement in Park & Bahn 2023, abstract and Figure 6."""


def answer(question: Question, by_identity: Mapping[Identity, Accesses]) -> dict[str, Any]:
    """Returns the facts of one layer, of other capacities, and of other identities of pages.

    `by_identity` has at least the accesses of the question's identity. Keys: requests (N), those of
    `input_facts`, capacity_pages, capacity_bytes, disk_writes (D), resident_pages, improvement,
    improvement_with_drain, reads (pages; None: the buffer takes none), read_hits (those that the
    layer serves); sweep: the same at shares of U; identities: see `_identity`;
    papers_number: the sentence of `papers_number`; assumptions.
    """
    accesses = by_identity[question.identity]
    pages = question.capacity.of(accesses.unique_written)
    identities = {str(key): _identity(question, of, pages) for key, of in by_identity.items()}
    return {
        "requests": _row(question, accesses, 0)["disk_writes"],
        **input_facts(accesses),
        **_row(question, accesses, pages),
        "sweep": [
            {"capacity_share": share}
            | _row(question, accesses, Capacity(share=share).of(accesses.unique_written))
            for share in SHARES
        ],
        "identities": identities,
        "papers_number": papers_number(identities),
        "assumptions": [
            question.capacity.said(accesses.unique_written),
            *one_capacity.assumptions(
                question.medium, question.disk, question.policy, question.buffer
            ),
            *about_sizes(question.policy, max(of.unique for of in by_identity.values())),
            *about_input(accesses),
        ],
    }


def papers_number(identities: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a sentence: the layer size that reaches the paper's mean improvement with this trace,
    for each identity."""
    mean = PAPERS[1]
    parts = []
    for name, found in identities.items():
        needed = next(n for n in found["needed"] if n["improvement"] == mean)
        ways = []
        for key, how in (("capacity_pages", "without"), ("capacity_pages_with_drain", "with")):
            if needed[key] is None:
                column = "most" if key == "capacity_pages" else "most_with_drain"
                most = found[column]
                said = "nothing was written" if most is None else _short_of(mean, most)
                ways.append(f"not reached {how} the final drain ({said})")
            else:
                size = f"{show_digits(needed[key] * PAGE_BYTES / (1 << 20))} MiB"
                size = size if found["every_size"] else f"at most {size}"
                ways.append(f"{size} {how} the final drain")
        parts.append(f"with pages identified by {name}: {', '.join(ways)}")
    return f"Layer size that reaches the paper's mean of {mean:.0%}, {'; '.join(parts)}."


def _short_of(wanted: float, most: float) -> str:
    """Returns words for the largest share, in the digits that tell it from the wanted one."""
    for digits in range(_MOST_DIGITS):
        if show_share(most, digits) != show_share(wanted, digits):
            return show_bound(most, digits)
    return f"just short of {show_share(wanted, 0)}"


def _identity(question: Question, accesses: Accesses, pages: int) -> dict[str, Any]:
    """Returns the facts of one identity; the layer has `pages`.

    Keys: requests, unique_pages, mapping (pages of files, of no file, not mapped; empty by block),
    the row of this layer, most and most_with_drain (the largest improvements), curve
    (rows of `curve.improvements`, thinned), needed: for each of PAPERS the least capacity_pages
    that reaches it, without and with the drain; None: no capacity reaches it; and every_size
    (False: these are the least of those that were run; smaller ones may do).
    """
    found = curve(question.policy, accesses.page, accesses.unique, op=question.operations(accesses))
    frame = improvements(found, question.medium.write_ns, question.disk.write_ns)
    both = ("improvement", "improvement_with_drain")
    most, most_with_drain = (known(frame[column].max()) for column in both)
    return {
        "requests": found.writes,
        "unique_pages": accesses.unique_written,
        "mapping": accesses.by_mapping,
        **_row(question, accesses, pages),
        "most": most,
        "most_with_drain": most_with_drain,
        "every_size": runs_every_size(question.policy, accesses.unique),
        "curve": thinned(frame, _CURVE_ROWS).to_dict("records"),
        "needed": [
            {
                "improvement": wanted,
                "capacity_pages": smallest_capacity(frame, wanted),
                "capacity_pages_with_drain": smallest_capacity(frame, wanted, both[1]),
            }
            for wanted in PAPERS
        ],
    }


def _row(question: Question, accesses: Accesses, pages: int) -> dict[str, Any]:
    found = one_capacity.simulate(
        accesses, pages, question.medium, question.disk, question.policy,
        question.operations(accesses),
    )  # fmt: skip
    return {
        "capacity_pages": pages,
        "capacity_bytes": pages * PAGE_BYTES,
        "disk_writes": found.disk_writes,
        "resident_pages": found.resident_pages,
        "improvement": found.improvement,
        "improvement_with_drain": found.improvement_with_drain,
        "reads": found.reads if question.reads else None,
        "read_hits": found.read_hits if question.reads else None,
    }


def known(number: float) -> float | None:
    """Returns a number of a frame; None if it is NaN."""
    return None if math.isnan(number) else float(number)
