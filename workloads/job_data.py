"""The folder and the data sets of a job, which need no torch."""

from __future__ import annotations

from pathlib import Path

from tracer.workloads import models
from tracer.workloads.data import catalogue
from tracer.workloads.data.sets import DataRequest, DataSets
from tracer.workloads.errors import JobError, explained
from tracer.workloads.options import JobOptions


def make_output(output: Path) -> Path:
    """Makes the folder for the job's files and returns its absolute path. Raises JobError."""
    with explained(f"cannot make the output folder {output}", "name another folder with --output"):
        output.mkdir(parents=True, exist_ok=True)
    return output.absolute()


def open_data(options: JobOptions) -> DataSets:
    """Opens the data sets of the job; makes a set that does not exist. Raises JobError."""
    usable = models.find_model(options.model).datasets
    name = options.dataset or usable[0]
    source = catalogue.find_source(name)
    if name not in usable:
        raise JobError(
            f"{options.model} cannot be trained on {name}", f"use --dataset {' or '.join(usable)}"
        )
    samples = options.samples
    if samples is None and options.scale is not None:
        samples = max(1, round(source.samples * options.scale))
    request = DataRequest(options.data, options.output, options.seed, samples)
    return catalogue.open_sets(name, request)
