"""The commands `serve` and `request` of `python -m tracer.workloads`: a server, and its client.

torch is imported only when a server starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracer.workloads import models
from tracer.workloads.arguments import (
    Data,
    DataSet,
    DeviceOption,
    Model,
    Samples,
    Scale,
    Seed,
    Threads,
    positive,
)
from tracer.workloads.options import (
    Arrivals,
    JobOptions,
    RequestOptions,
    ServeOptions,
)


def serve(
    model: Model,
    checkpoint: Annotated[
        Path, typer.Option(metavar="FILE", help="A checkpoint.pt that `train` wrote.")
    ],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; 0.0.0.0: all addresses of this machine."
        ),
    ] = ServeOptions.host,
    port: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=65_535, help="Port to listen on; 0: any free port."),
    ] = ServeOptions.port,
    socket: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Unix socket to listen on, instead of a port."),
    ] = None,
    handlers: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=256, help="Requests to answer at the same time."),
    ] = ServeOptions.handlers,
    patience: Annotated[
        int,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=86_400,
            help="Time that a client may take to send its request.",
        ),
    ] = ServeOptions.patience_s,
    threads: Threads = None,
    device: DeviceOption = ServeOptions.device,
) -> dict[str, object]:
    """Answer requests with a trained model over HTTP until Ctrl-C.

    A line on stderr says when the server listens. GET /health describes the samples. POST
    /predict takes {"samples": [SAMPLE, ...]}, each sample a nested list of numbers, and answers
    {"predictions": [CLASS, ...]}.

    Example: python -m tracer.workloads serve lenet --checkpoint runs/lenet-0/checkpoint.pt
    """
    models.find_model(model)
    options = ServeOptions(
        model=model,
        checkpoint=checkpoint,
        host=host,
        port=port,
        socket=socket,
        handlers=handlers,
        patience_s=patience,
        threads=threads,
        device=device,
    )
    from tracer.workloads.serving.server import serve as run

    return run(options)


def request(
    model: Model,
    rate: Annotated[
        float,
        typer.Option(metavar="N", callback=positive, help="Mean rate of requests per second."),
    ],
    url: Annotated[
        str, typer.Option(metavar="URL", help="URL of the server, or unix:PATH of its socket.")
    ] = RequestOptions.url,
    requests: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=10_000_000, help="Requests to send; or give --seconds."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", callback=positive, help="Time to send for; or give --requests."
        ),
    ] = None,
    arrivals: Annotated[
        Arrivals, typer.Option(help="Request times: drawn at random from the seed, or even.")
    ] = RequestOptions.arrivals,
    connections: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1024, help="Maximum number of requests in flight."),
    ] = RequestOptions.connections,
    batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Samples per request.")
    ] = RequestOptions.batch_size,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=positive,
            help="Time to wait for an answer, from the due time.",
        ),
    ] = RequestOptions.timeout_s,
    seed: Seed = JobOptions.seed,
    data: Data = None,
    samples: Samples = None,
    dataset: DataSet = None,
    scale: Scale = None,
) -> dict[str, object]:
    """Send samples of the test set to a server at a fixed rate and measure its answers.

    A latency is measured from the time the request was due, so a stalled server is visible.

    Example: python -m tracer.workloads request lenet --rate 100 --seconds 10
    """
    models.find_model(model)
    options = RequestOptions(
        model=model,
        output=Path("runs") / f"{model}-{seed}-request",
        url=url,
        rate=rate,
        requests=requests,
        seconds=seconds,
        arrivals=arrivals,
        connections=connections,
        batch_size=batch_size,
        timeout_s=timeout,
        seed=seed,
        data=data,
        samples=samples,
        dataset=dataset,
        scale=scale,
    )
    from tracer.workloads.serving.load import request as run

    return run(options)
