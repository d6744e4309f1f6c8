"""The setup of a job in torch: its device, its batches and its model."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from tracer.workloads import checkpoint
from tracer.workloads.data.loader import Batches
from tracer.workloads.data.sets import DataShape, SampleSet, SampleShape
from tracer.workloads.errors import JobError
from tracer.workloads.models.workload import Workload
from tracer.workloads.options import Device, JobOptions


def choose_device(device: Device) -> torch.device:
    """Returns the device to run on. Raises JobError if CUDA is requested and missing."""
    with warnings.catch_warnings():
        # A CUDA build of torch warns if there is no driver; is_available() is enough here.
        warnings.simplefilter("ignore")
        cuda = torch.cuda.is_available()
    if device is Device.CUDA and not cuda:
        raise JobError(
            "CUDA is not available to this torch",
            "use --device cpu, or install a GPU driver and a CUDA build of torch",
        )
    return torch.device("cuda" if cuda and device is not Device.CPU else "cpu")


def seed_torch(options: JobOptions) -> None:
    """Seeds the weights, selects deterministic kernels, and sets the number of threads."""
    torch.manual_seed(options.seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    set_threads(options.threads)


def set_threads(threads: int | None) -> None:
    """Sets the number of torch's threads; None leaves torch's own choice."""
    if threads is not None:
        torch.set_num_threads(threads)


def make_batches(
    options: JobOptions, samples: SampleSet, device: torch.device, *, shuffle: bool
) -> Batches:
    """Prepares `samples` and returns their batches as the job's options require."""
    samples.prepare()
    return Batches(
        samples,
        batch_size=options.batch_size,
        workers=options.workers,
        seed=options.seed,
        shuffle=shuffle,
        device=device,
    )


def build_model(workload: Workload, data: DataShape, device: torch.device) -> nn.Module:
    """Returns the model with fresh weights, on the device."""
    return workload.build(data).to(device)


def load_checkpoint(workload: Workload, path: Path, device: torch.device) -> checkpoint.Checkpoint:
    """Loads the checkpoint at `path`. Raises JobError if it is none, or of another model."""
    state = checkpoint.load(path, device)
    if state.model != workload.name:
        raise JobError(
            f"{path} holds a {state.model!r}, not a {workload.name!r}",
            "name the model that was trained",
        )
    return state


def sample_shape(data: DataShape, inputs: Tensor) -> SampleShape:
    """Returns the shape of one sample, taken from a batch, so that no further sample is read."""
    return SampleShape(
        classes=data.classes,
        vocabulary=data.vocabulary,
        side=data.side,
        dimensions=tuple(inputs.shape[1:]),
        dtype=inputs.dtype,
    )
