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

__all__ = ["HEIF", "SUFFIXES", "BrokenMetadataError", "UnsupportedPixelsError", "heif", "opened", "readable"]

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp")
HEIF: Final = (".heic", ".heif", ".hif")
"""Read where pillow-heif is installed; where it is not, or cannot, such a file is omitted and listed."""
DECODERS: Final = ("JPEG", "PNG", "WEBP", "HEIF")
"""Pillow's names of these formats. It knows others, one of which (PostScript) it hands to another program."""


class BrokenMetadataError(Exception):
    """A picture that opens, beside metadata that no parser reads: nothing can be promised of such a file."""


class UnsupportedPixelsError(ValueError):
    """Pixels that are not turned into 8 bits a channel."""


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
def opened(contents: bytes) -> Iterator[Image.Image]:
    """Open a picture from its file's bytes, without Pillow's warnings; one of more than 89 million pixels is refused.

    Raises:
        Exception: of any class, since Pillow's decoders share none; :func:`readable` makes one of them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(io.BytesIO(contents), formats=_decoders()) as photo:
            yield photo


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
        found = f"a photo that cannot be {what} ({_describe_failure(error)})"
        raise InputError([Fault(name, "", found, "a photo of 8 bits a channel")]) from None


def _describe_failure(error: Exception) -> str:
    """Say why a photo cannot be decoded, in words that hold nothing of its file."""
    if isinstance(error, UnsupportedPixelsError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "no picture, or a broken one"
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return f"more than {Image.MAX_IMAGE_PIXELS:,} pixels"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "too large for the memory" if isinstance(error, MemoryError) else "its file is damaged"
