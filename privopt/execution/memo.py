"""Cache of one run: results for the same bytes are not computed twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FACTS: ContextVar[dict[bytes, Any] | None] = ContextVar("_FACTS", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Remember facts by content inside this block.

    For a run that measures what it made and then reads back what it wrote: bytes that differ are measured again.
    """
    token = _FACTS.set({})
    try:
        yield
    finally:
        _FACTS.reset(token)


def facts() -> dict[bytes, Any] | None:
    """Return the facts of this run by :func:`content_key`; None outside :func:`remembering`."""
    return _FACTS.get()


def content_key(words: str, *arrays: NDArray[Any]) -> bytes:
    """Return a digest of a text and of the bytes of arrays."""
    digest = hashlib.sha256(words.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.digest()
