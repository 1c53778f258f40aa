"""Machine code kept on the disk: what cannot be read, or is not what was written, is compiled anew."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from numba.core.caching import FunctionCache, IndexDataCacheFile

__all__ = ["KeptCode"]

SUM: Final = sha256().digest_size


class _Summed(IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
    """numba's files, with a SHA-256 at their end: code that changed on the disk is not run."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)
        return data + sha256(data).digest()

    def _load_data(self, name: str) -> Any:
        data = Path(self._data_path(name)).read_bytes()
        if sha256(data[:-SUM]).digest() != data[-SUM:]:
            raise ValueError(f"{name}: its sum is another")
        return pickle.loads(data[:-SUM])


class KeptCode(FunctionCache):  # type: ignore[misc, unused-ignore]
    """The code kept of one function; a cache that is of no use costs time, and ends nothing.

    Raises:
        RuntimeError: no folder can be written.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Summed(
            cache_path=self.cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def load_overload(self, sig: object, target_context: object) -> object:
        """The code for a signature; None, and an empty index, where the files will not do."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what a garbled pickle raises may be anything
            try:
                self.flush()
            except OSError:
                self.disable()
            return None

    def save_overload(self, sig: object, data: object) -> None:
        """Keep it, where there is room and leave to."""
        try:
            super().save_overload(sig, data)
        except OSError:
            self.disable()
