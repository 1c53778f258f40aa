"""Arrays in NumPy's files, read without NumPy."""

from __future__ import annotations

import ast
import math
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privopt.checker.exact import RefusedError, need

__all__ = ["Array", "read_npz", "read_texts"]

LETTERS = {
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
}
"""Types of values, and what ``struct`` calls them."""

STORED, DEFLATED = 0, 8
"""Ways of compression that an archive may use."""

MAX_UNPACKED_RATIO = 8
"""An archive may hold so many times its own bytes; more is refused before it is unpacked."""


class Array:
    """An array of an ``.npy`` file.

    Attributes:
        kind: type of its values as NumPy writes it, ``"<"`` omitted; ``"U"`` for text.
        shape: its sides.
        flat: its values, row by row.
        rows: of a matrix its rows, else empty.
    """

    def __init__(self, raw: bytes, name: str) -> None:
        """Read the bytes of a file.

        Raises:
            RefusedError: they are not ``.npy`` file, or of a type that is unknown here.
        """
        size = 10 + int.from_bytes(raw[8:10], "little")
        need(raw[:8] == b"\x93NUMPY\1\0" and size <= len(raw), f"{name}: no .npy file", 2)
        head = ast.literal_eval(raw[10:size].decode("latin-1"))
        descr, turned = str(head["descr"]), head["fortran_order"]
        self.shape: tuple[int, ...] = head["shape"]
        is_text, unit = re.fullmatch(r"<U\d+", descr), int(re.sub(r"\D", "", descr) or 0)
        known = (is_text or descr[1:] in LETTERS) and unit
        sound = type(turned) is bool and type(self.shape) is tuple and len(head) == 3
        what = f"values of type {descr}, shape {self.shape}"
        need(known and sound, f"{name}: {what}: unknown here", 2)
        self.kind = "U" if is_text else descr.lstrip("<|" if unit > 1 else "<>|")
        body = raw[size:]
        self.flat: Sequence[Any] = _texts(body, unit) if is_text else _numbers(body, descr, unit)
        fits = math.prod(self.shape) == len(self.flat)
        need(fits, f"{name}: not as long as its header says", 2)
        if turned and len(self.shape) == 2:  # stored column by column
            rows = self.shape[0]
            self.flat = [value for i in range(rows) for value in self.flat[i::rows]]
        self.rows: list[tuple[Any, ...]] = []
        if len(self.shape) == 2 and self.shape[1] > 0:
            width = self.shape[1]
            starts = range(0, len(self.flat), width)
            self.rows = [tuple(self.flat[at : at + width]) for at in starts]


def _texts(body: bytes, unit: int) -> list[str]:
    letters = body.decode("utf-32-le")
    return [letters[at : at + unit].rstrip("\0") for at in range(0, len(letters), unit)]


def _numbers(body: bytes, descr: str, unit: int) -> tuple[Any, ...]:
    order = ">" if descr[0] == ">" else "<"
    return struct.unpack(f"{order}{len(body) // unit}{LETTERS[descr[1:]]}", body)


def read_npz(path: Path, wanted: str, more: int = 0, maybe: str = "") -> list[Array]:
    """Read the arrays of an archive in the order of ``wanted``, then those of ``maybe`` it has.

    Args:
        path: of the archive.
        wanted: a word for each array, ``name:type:sides``, a regular expression; no other array may
            be there.
        maybe: likewise, for arrays that may be absent.
        more: bytes that the arrays may have besides eight times the archive's; 0 allows at most
            the archive's own.

    Raises:
        RefusedError: no archive, or one of damaged arrays. Bytes outside of members, in which other
            programs may find one. A name twice, more than it may hold, or other arrays.
    """
    try:
        found = _arrays(path, more)
    except RefusedError:
        raise
    except Exception:  # bytes that no one meant so may raise anything
        raise RefusedError(f"{path.name}: no archive of whole arrays, as np.savez writes", 2) from None
    holds = " ".join(sorted(f"{name}:{each.kind}:{len(each.shape)}" for name, each in found.items()))
    parts = wanted.split() + [part for part in maybe.split() if part.split(":")[0] in found]
    pattern = " ".join(sorted(parts))
    need(re.fullmatch(pattern, holds), f"{path.name}: expected arrays {wanted}, got {holds!r}", 2)
    return [found[part.split(":")[0]] for part in parts]


def _arrays(path: Path, more: int) -> dict[str, Array]:
    """Return all arrays of an archive by name."""
    found: dict[str, Array] = {}
    left = (MAX_UNPACKED_RATIO if more else 1) * path.stat().st_size + more
    with zipfile.ZipFile(path) as archive:
        _check_layout(path, archive)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            left -= info.file_size
            sound = name not in found and info.compress_type in (STORED, DEFLATED) and left >= 0
            need(sound, f"{path.name}: {name}: twice, or too large", 2)
            info.file_size += 1  # were there more than is stated, this much would be read, and have another sum
            contents = archive.open(info).read(info.file_size)
            found[name] = Array(contents, f"{path.name}: {name}")
    return found


def _check_layout(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive in which other programs than ``zipfile`` may find other members.

    Members follow one another from the first byte on, then comes their directory, then the end
    record, which has 76 bytes more in archives above 2 GiB (zip64).

    Raises:
        RefusedError: anything else is there.
    """
    at, directory, members = 0, 0, archive.infolist()
    with path.open("rb") as file:
        for info in members:
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            plain = info.orig_filename == info.filename and not info.flag_bits and not info.comment
            sound = plain and info.header_offset == at
            need(sound, f"{path.name}: {info.filename!r}: odd, or not behind the one before", 2)
            at += 30 + name + extra + info.compress_size
            directory += 46 + name + len(info.extra)
        file.seek(at + directory + (76 if at >= 2**31 else 0))
        places = len(members), len(members), directory, min(at, 2**32 - 1)
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *places, 0)
        need(file.read() == end, f"{path.name}: more than members, or another end", 2)


def read_texts(path: Path, name: str) -> list[str]:
    """Read one array of texts of an archive; anyone who reads all arrays checks the archive.

    Raises:
        RefusedError: it is not there, or too large.
    """
    with zipfile.ZipFile(path) as archive:
        found = [info for info in archive.infolist() if info.filename == f"{name}.npy"]
        sound = len(found) == 1 and found[0].file_size <= path.stat().st_size
        need(sound, f"{path.name}: {name}: missing, twice, or too large", 2)
        array = Array(archive.open(found[0]).read(), f"{path.name}: {name}")
    need(array.kind == "U" and len(array.shape) == 1, f"{path.name}: {name}: no texts", 2)
    return [*array.flat]
