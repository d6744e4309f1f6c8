"""Image files: written as JPEG, and read.

Files that are read may be hostile: their format, bytes and pixels are bounded.
"""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from tracer.workloads.data.folder import MEND, open_regular
from tracer.workloads.errors import JobError, explained
from tracer.workloads.files import write_anew

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = ("JPEG", "PNG")
MOST_BYTES = 64 << 20
MOST_PIXELS = 64 << 20
"""Maximum number of pixels; an image of that size takes 192 MiB while it is decoded."""

# Exceptions that pillow's readers of these formats raise for damaged data; usually OSError.
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

# The usual mean and standard deviation of ImageNet's training pixels.
_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1)
_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1)

# Imports the readers now; otherwise each DataLoader worker would do so in its first fetch.
Image.preinit()


def read_square(path: Path, side: int, mend: str = MEND) -> Image.Image:
    """Returns the middle square of an image file as `side` x `side` RGB pixels.

    The shorter side is scaled to `side`, and the longer one is cut. Raises JobError with the path.
    """
    data = _read(path, mend)
    with warnings.catch_warnings():
        # Warnings about odd metadata and large images; the size is checked below.
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise JobError(
                    f"{path} states {width} x {height} pixels, more than {MOST_PIXELS}", mend
                )
            # Cropping and resizing in one call: an image of one line never gets large.
            shorter = min(width, height)
            left, top = (width - shorter) // 2, (height - shorter) // 2
            box = (left, top, left + shorter, top + shorter)
            return image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box)
        except _DAMAGED as error:
            raise JobError(
                f"{path} is not a complete {' or '.join(FORMATS)} image", mend
            ) from error


def write_jpeg(path: Path, image: Image.Image, quality: int) -> None:
    """Writes a JPEG file. Raises OSError."""
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=quality)
    # If Pillow wrote the file itself, its error would lack the system's reason.
    write_anew(path, encoded.getbuffer())


def to_tensor(image: Image.Image) -> Tensor:
    """Returns RGB pixels as float32 [3, height, width], scaled as ImageNet models expect them."""
    from torch import from_numpy

    pixels = np.array(image).transpose(2, 0, 1).astype(np.float32, order="C")
    mean, deviation = from_numpy(_MEAN), from_numpy(_DEVIATION)
    return from_numpy(pixels).div_(255).sub_(mean).div_(deviation)


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
