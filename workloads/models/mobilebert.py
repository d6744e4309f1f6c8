"""MobileBERT of the package transformers, with fresh weights, as a classifier of texts.

Sun et al., "MobileBERT: a compact task-agnostic BERT for resource-limited devices", 2020.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from types import ModuleType

from torch import Tensor, nn
from torch.nn import functional

from tracer.workloads.data.vocabulary import PADDING, SIZE
from tracer.workloads.models import vision
from tracer.workloads.models.workload import Workload


def _import() -> ModuleType:
    """Imports transformers' MobileBERT, with online look-ups, telemetry and advice turned off."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
    importlib.import_module("transformers")
    if find_spec("torchvision"):
        # transformers imports an installed torchvision, which may not load without this.
        vision.models()
    return importlib.import_module("transformers.models.mobilebert.modeling_mobilebert")


# Imported with this file, so that a missing package is reported before data is made.
_transformers = _import()


class MobileBert(nn.Module):
    """A model from tokens [batch, length], padded at the end, to scores [batch, classes]."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        config = _transformers.MobileBertConfig(
            vocab_size=max(vocabulary, SIZE), num_labels=classes, pad_token_id=PADDING
        )
        self.bert = _transformers.MobileBertForSequenceClassification(config)

    def forward(self, tokens: Tensor) -> Tensor:
        present = (tokens != PADDING).long()
        scores: Tensor = self.bert(input_ids=tokens, attention_mask=present).logits
        return scores


def _predict(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


WORKLOAD = Workload(
    name="mobilebert",
    build=lambda sets: MobileBert(sets.vocabulary, sets.classes),
    loss=functional.cross_entropy,
    predict=_predict,
    # MobileBERT has no layer norms for stability. Twice this rate was stable for 228 steps of
    # short texts.
    lr=0.005,
    momentum=0.9,
)
