"""The numbers of the papers, from `reference/*.csv`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

_FOLDER = Path(__file__).parents[1] / "reference"

MODELS = {
    "SqueezeNet": "squeezenet",
    "Mobile-BERT": "mobilebert",
    "AlexNet": "alexnet",
    "LSTM": "lstm",
    "LeNet-5": "lenet",
    "MobileNet v3": "mobilenet",
    "ResNet-18": "resnet18",
    "ResNet-50": "resnet50",
}
"""Our names for the papers' models."""

TENANCIES = {"single": "1", "multi": "4"}
"""Values of `where` for the tenancies of Park & Bahn 2023: the number of containers."""


def numbers(name: str) -> pd.DataFrame:
    """Returns the frame of `reference/NAME.csv`, with our model names and tenancies as `where`."""
    frame = pd.read_csv(_FOLDER / f"{name}.csv")
    if "model" in frame:
        frame["model"] = frame["model"].map(MODELS)
    if "tenancy" in frame:
        frame.insert(0, "where", frame.pop("tenancy").map(TENANCIES))
    return frame
