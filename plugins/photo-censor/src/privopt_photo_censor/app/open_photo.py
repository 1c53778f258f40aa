"""Open a photo with an allowed image decoder only, silently, and turn any decoding failure into InputError."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from PIL import Image, UnidentifiedImageError

from privopt.errors import Fault, InputError, PrivoptError

__all__ = [
    "HEIF",
    "JPEG",
    "LATE_EXIF",
    "MAX_MEGAPIXELS",
    "SUFFIXES",
    "BrokenMetadataError",
    "TooManyPixelsError",
    "UnsupportedPixelsError",
    "describe_failure",
    "heif",
    "opened",
    "readable",
    "unreadable_fault",
]

JPEG: Final = (".jpg", ".jpeg", ".jpe", ".jfif")
SUFFIXES: Final = (*JPEG, ".png", ".webp")
HEIF: Final = (".heic", ".heif", ".hif")
"""Read where pillow-heif is installed; where it is not, or cannot, such a file is omitted and listed."""
DECODERS: Final = ("JPEG", "PNG", "WEBP", "HEIF")
"""Pillow's names of these formats. It knows others, one of which (PostScript) it hands to another program."""


class BrokenMetadataError(Exception):
    """A picture that opens, beside metadata that no parser reads: nothing can be promised of such a file."""


class UnsupportedPixelsError(ValueError):
    """Pixels that are not turned into 8 bits a channel."""


class TooManyPixelsError(ValueError):
    """A picture of more pixels than ``photos.max_megapixels`` allows."""


MAX_MEGAPIXELS: Final = 89.0
"""Millions of pixels that a photo may have, unless the problem says otherwise: 12 bytes each while it is read."""
LATE_EXIF: Final = "privopt: no Exif before the pixels"
"""Key of ``Image.info`` for a PNG whose Exif, if any, comes after its pixels. Programs do not turn such a picture."""


logging.getLogger("PIL").addHandler(logging.NullHandler())  # without a handler Python prints Pillow's log


@cache
def heif() -> bool:
    """Check whether HEIC files can be read: with pillow-heif (extra ``heif``), which Pillow uses from now on."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _decoders() -> tuple[str, ...]:
    """Return those of :data:`DECODERS` that are installed: Pillow raises KeyError for others."""
    heif()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


@contextmanager
def opened(contents: bytes, max_megapixels: float = MAX_MEGAPIXELS) -> Iterator[Image.Image]:
    """Open a picture from its file's bytes, without Pillow's warnings.

    Args:
        contents: The file.
        max_megapixels: A picture with more millions of pixels is refused before any of them is decoded.

    Raises:
        Exception: Of any class, since Pillow's decoders share none. :func:`readable` turns it into one of ours.
    """
    pillow_limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is lower than what a problem may allow
        try:
            with Image.open(io.BytesIO(contents), formats=_decoders()) as photo:
                megapixels = photo.width * photo.height / 1e6
                if megapixels > max_megapixels:
                    limit = f"photos.max_megapixels = {max_megapixels:g}"
                    raise TooManyPixelsError(f"{megapixels:.4g} megapixels, more than {limit}")
                if photo.format == "PNG" and not photo.info.keys() & {"exif", "Raw profile type exif"}:
                    photo.info[LATE_EXIF] = True
                yield photo
        finally:
            Image.MAX_IMAGE_PIXELS = pillow_limit


@contextmanager
def readable(name: str, what: str = "read") -> Iterator[None]:
    """Raise InputError with the photo's name if it cannot be decoded; nothing but decoding belongs inside.

    The error does not repeat the decoder's message, because decoders quote bytes of the file.
    """
    try:
        yield
    except (PrivoptError, BrokenMetadataError):
        raise
    except Exception as error:  # a decoder raises whatever it likes at a wrong byte
        raise InputError([unreadable_fault(name, error, what)]) from None


def unreadable_fault(name: str, error: Exception, what: str = "read") -> Fault:
    """Return the fault of a photo that cannot be read, or copied."""
    expectation = "a photo of 8 bits a channel"
    if isinstance(error, TooManyPixelsError):
        expectation = "a smaller photo, or a greater photos.max_megapixels"
    return Fault(name, "", f"a photo that cannot be {what} ({describe_failure(error)})", expectation)


def describe_failure(error: Exception) -> str:
    """Say why a photo cannot be decoded, in words that hold nothing of its file."""
    if isinstance(error, UnsupportedPixelsError | TooManyPixelsError):
        return str(error)
    if isinstance(error, BrokenMetadataError):
        return "metadata that cannot be read"
    if isinstance(error, UnidentifiedImageError):
        return "no picture, or a broken one"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "too large for the memory" if isinstance(error, MemoryError) else "its file is damaged"
