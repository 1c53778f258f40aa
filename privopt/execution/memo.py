"""The cache of a run: results by a hash of the bytes that they follow from, so that none is computed twice."""

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
    """Open an empty cache for the block.

    A run measures its release, and measures it again after reading back the written files. With the cache, equal bytes
    are measured only once; different bytes are measured again.
    """
    token = _FACTS.set({})
    try:
        yield
    finally:
        _FACTS.reset(token)


def facts() -> dict[bytes, Any] | None:
    """Return the cache, a dictionary from :func:`content_key` to results; None outside :func:`remembering`."""
    return _FACTS.get()


def content_key(words: str, *arrays: NDArray[Any]) -> bytes:
    """Return a cache key: the SHA-256 digest of ``words``, which says what was computed, and of the arrays' bytes.

    If the arrays' shapes or types can vary, ``words`` must state them, because only the bytes enter the digest.
    """
    digest = hashlib.sha256(words.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.digest()
