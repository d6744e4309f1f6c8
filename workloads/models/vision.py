"""torchvision's models, usable even if its compiled operators do not fit the installed torch."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[torch.library.Library] = []


def models() -> ModuleType:
    """Returns the module `torchvision.models`.

    If the compiled operators do not load, torchvision still needs the schemas of two of them, which
    are defined here. No classification model calls these operators.
    """
    try:
        return importlib.import_module("torchvision.models")
    except (RuntimeError, AttributeError):
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        _kept.append(library)  # the definitions end with the library object
        return importlib.import_module("torchvision.models")
