"""torchvision's models, also beside a torch that its compiled operators were not built for."""

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
    """The module `torchvision.models`.

    Where the compiled operators do not load, torchvision still wants the schemas of two of them;
    no classification model calls either.
    """
    try:
        return importlib.import_module("torchvision.models")
    except (RuntimeError, AttributeError):
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        _kept.append(library)  # definitions go with their library
        return importlib.import_module("torchvision.models")
