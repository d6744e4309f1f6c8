"""A classifier of texts by LSTM (Hochreiter and Schmidhuber, "Long short-term memory", 1997).

The papers give no sizes of the model. The sizes here are usual for a text classifier.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tracer.workloads.data.vocabulary import PADDING
from tracer.workloads.models.workload import Workload

_EMBEDDED = 128
_HIDDEN = 256
_LAYERS = 2


class LstmClassifier(nn.Module):
    """A model from tokens [batch, length], padded at the end, to scores [batch, classes]."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, _EMBEDDED, padding_idx=PADDING)
        self.lstm = nn.LSTM(_EMBEDDED, _HIDDEN, num_layers=_LAYERS, batch_first=True)
        self.classifier = nn.Linear(_HIDDEN, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        # Padding follows the last token: it changes no state before it, and the mean leaves it out.
        present = (tokens != PADDING).unsqueeze(2)
        mean = (states * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
        scores: Tensor = self.classifier(mean)
        return scores


def _predict(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


WORKLOAD = Workload(
    name="lstm",
    build=lambda sets: LstmClassifier(sets.vocabulary, sets.classes),
    datasets=("wikipedia",),
    loss=functional.cross_entropy,
    predict=_predict,
    lr=0.5,
    momentum=0.9,
)
