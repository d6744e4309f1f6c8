"""A classifier of texts by LSTM (Hochreiter and Schmidhuber, "Long short-term memory", 1997).

Park & Bahn 2023, Table 4, name the network of Sak et al., "Long short-term memory recurrent neural
network architectures for large scale acoustic modeling", Interspeech 2014, as the *large* model of
texts, but give no sizes. Ours are those of the smallest LSTM of Sak et al.: one layer of 750 cells.
The embedding of each token is as wide, so the model has 27.4 million weights, more than MobileBERT,
the *small* model. Sak et al. have no embedding; there, the output layer has most weights.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tracer.workloads.data.vocabulary import PADDING, SIZE
from tracer.workloads.models.workload import Workload

_CELLS = 750


class LstmClassifier(nn.Module):
    """A model from tokens [batch, length], padded at the end, to scores [batch, classes]."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max(vocabulary, SIZE), _CELLS, padding_idx=PADDING)
        self.lstm = nn.LSTM(_CELLS, _CELLS, batch_first=True)
        self.classifier = nn.Linear(_CELLS, classes)

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
    loss=functional.cross_entropy,
    predict=_predict,
    lr=0.1,
    momentum=0.9,
)
