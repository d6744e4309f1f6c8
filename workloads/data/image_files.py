"""Image files: written as JPEG, and read. What is read is hostile: kind, bytes, pixels bounded."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from workloads.data.folder import MEND, open_regular
from workloads.errors import JobError, explained
from workloads.files import write_anew

FORMATS = ("JPEG", "PNG")
MOST_BYTES = 64 << 20
MOST_PIXELS = 64 << 20
"""An image of so many takes 192 MiB while it is decoded."""

# What pillow's readers of these formats raise for damaged data; OSError is the usual one.
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    EOFError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

# Mean and standard deviation of ImageNet's training pixels, as everyone scales them.
_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

# The readers are imported now: else each DataLoader worker would, in its first fetch.
Image.preinit()


def read_square(path: Path, side: int, mend: str = MEND) -> Image.Image:
    """The middle square of an image file as `side` x `side` RGB pixels: its shorter side is
    fixed to `side`, the rest of the longer one cut. Raises JobError that names the file."""
    data = _read(path, mend)
    with warnings.catch_warnings():
        # Of odd metadata, and of large images, which are measured below.
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise JobError(
                    f"{path} states {width} x {height} pixels, more than {MOST_PIXELS}", mend
                )
            # In this order, so that an image of one line is not blown up beyond the square.
            shorter = min(width, height)
            left, top = (width - shorter) // 2, (height - shorter) // 2
            box = (left, top, left + shorter, top + shorter)
            return image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box)
        except _DAMAGED as error:
            raise JobError(f"{path} is no whole {' or '.join(FORMATS)} image", mend) from error


def write_jpeg(path: Path, image: Image.Image, quality: int) -> None:
    """Write a file. Raises OSError."""
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=quality)
    # Pillow, writing by itself, does not say why the system refused.
    write_anew(path, encoded.getbuffer())


def to_tensor(image: Image.Image) -> Tensor:
    """RGB pixels as float32 [3, height, width], scaled as models of ImageNet expect them."""
    pixels = np.array(image).transpose(2, 0, 1).astype(np.float32, order="C")
    return torch.from_numpy(pixels).div_(255).sub_(_MEAN).div_(_DEVIATION)


def _read(path: Path, mend: str) -> bytes:
    with explained(f"cannot read {path}", "look at the disk and the folder"):
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            if size > MOST_BYTES:
                raise JobError(f"{path} has {size} bytes, more than {MOST_BYTES}", mend)
            return os.read(fd, size)
        finally:
            os.close(fd)
