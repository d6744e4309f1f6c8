"""The options of `tracer simulate` that its model, or a file for --config, has no use for."""

from __future__ import annotations

from enum import StrEnum

import typer

from tracer.probes.errors import UsageError


class Model(StrEnum):
    """The models of the flush layer."""

    PAPER = "paper"
    CURVE = "curve"
    TIMED = "timed"


_ONE_SIZE = (Model.PAPER, Model.TIMED)
_USED_BY: dict[str, tuple[Model, ...]] = {
    "capacity": _ONE_SIZE,
    "capacity_pages": _ONE_SIZE,
    "capacity_share": _ONE_SIZE,
    "wanted": (Model.CURVE,),
    "destage": (Model.TIMED,),
    "partitioned": (Model.TIMED,),
}
"""Parameters that only some models use."""

_OF_A_SWEEP = (
    *("model", "capacity", "capacity_pages", "capacity_share", "policy", "buffer"),
    *("identity", "medium", "disk", "devices", "destage"),
)
"""Parameters that a file for --config replaces."""

_NOT_IN_A_SWEEP = ("wanted", "partitioned")
"""Parameters that neither a file for --config nor the command line can set for a sweep."""


def refuse_unused(context: typer.Context, model: Model) -> None:
    """Raises UsageError if the command line has an option that the model does not use."""
    for name, models in _USED_BY.items():
        if model not in models and _given(context, name):
            raise UsageError(
                f"the model {model} has no use for {_option(name)}",
                f"leave it out, or give --model {' or '.join(models)}",
            )


def refuse_set_by_file(context: typer.Context) -> None:
    """Raises UsageError if the command line has an option of the model or the layer.

    A file for --config replaces these options, or a sweep has no use for them.
    """
    for name in _OF_A_SWEEP:
        if _given(context, name):
            option = _option(name)
            raise UsageError(f"--config sets what {option} sets, too", f"leave out {option}")
    for name in _NOT_IN_A_SWEEP:
        if _given(context, name):
            option = _option(name)
            raise UsageError(f"a sweep has no {option}", f"leave out {option} or --config")


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
