"""Read NumPy's ``.npy`` and ``.npz`` files with the standard library alone.

An ``.npy`` file has the format defined in NEP 1, and an ``.npz`` file is a ZIP archive without encryption. The reader
is stricter than NumPy and rejects any file that two programs could read differently. Otherwise, the checker and a user
might see different releases in the same file.
"""

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
"""The ``struct`` format character for each type of value, keyed by NumPy's name for the type."""

STORED, DEFLATED = 0, 8
"""The ZIP numbers of the compression methods that an archive may use."""

MAX_UNPACKED_RATIO = 8
"""The largest accepted ratio of the arrays' total size to the size of their archive, if the caller permits extra bytes.

The extra bytes are allowed in addition. If the caller permits none, the ratio is 1. Archives with larger arrays are
rejected before they are unpacked.
"""


class Array:
    """The array stored in an ``.npy`` file.

    Attributes:
        kind: The type of the values in NumPy's notation without ``"<"``, or ``"U"`` for strings.
        shape: The length along each axis.
        flat: The values in row-major order.
        rows: The rows of the array if it has two axes, and an empty list otherwise.
    """

    def __init__(self, raw: bytes, name: str) -> None:
        """Read the array from the contents of a file.

        Args:
            raw: The contents of the file.
            name: The array's name, for error messages.

        Raises:
            RefusedError: The contents are not in the ``.npy`` format, or the checker does not know the type of the
                values.
        """
        # Only version 1.0 is accepted, in which the header's length takes two bytes. NumPy uses later versions only for
        # longer headers and special types.
        size = 10 + int.from_bytes(raw[8:10], "little")
        need(raw[:8] == b"\x93NUMPY\1\0" and size <= len(raw), f"{name}: not a .npy file", 2)
        # The header is a Python literal, which literal_eval reads without running any code. ``descr`` is the type of
        # the values: byte order, a letter and the size of a value, such as "<u8".
        header = ast.literal_eval(raw[10:size].decode("latin-1"))
        descr, is_fortran = str(header["descr"]), header["fortran_order"]
        self.shape: tuple[int, ...] = header["shape"]
        is_text, unit = re.fullmatch(r"<U\d+", descr), int(re.sub(r"\D", "", descr) or 0)
        is_known_type = (is_text or descr[1:] in LETTERS) and unit
        is_valid_header = type(is_fortran) is bool and type(self.shape) is tuple and len(header) == 3
        description = f"values of type {descr}, shape {self.shape}"
        need(is_known_type and is_valid_header, f"{name}: {description}: unknown here", 2)
        self.kind = "U" if is_text else descr.lstrip("<|" if unit > 1 else "<>|")
        body = raw[size:]
        self.flat: Sequence[Any] = _decode_texts(body, unit) if is_text else _unpack_numbers(body, descr, unit)
        has_right_length = math.prod(self.shape) == len(self.flat)
        need(has_right_length, f"{name}: its length is not that in its header", 2)
        # A matrix stored column by column is rearranged row by row. For vectors, the two orders are the same.
        if is_fortran and len(self.shape) == 2:
            rows = self.shape[0]
            self.flat = [value for i in range(rows) for value in self.flat[i::rows]]
        self.rows: list[tuple[Any, ...]] = []
        if len(self.shape) == 2 and self.shape[1] > 0:
            width = self.shape[1]
            starts = range(0, len(self.flat), width)
            self.rows = [tuple(self.flat[start : start + width]) for start in starts]


def _decode_texts(body: bytes, unit: int) -> list[str]:
    """Decode an array of strings, each stored as ``unit`` 4-byte characters and padded with zero characters."""
    letters = body.decode("utf-32-le")
    return [letters[start : start + unit].rstrip("\0") for start in range(0, len(letters), unit)]


def _unpack_numbers(body: bytes, descr: str, unit: int) -> tuple[Any, ...]:
    """Decode the numbers in an array's bytes.

    Args:
        body: The bytes after the header.
        descr: The byte order and type of a number, such as ``"<u8"``.
        unit: The number of bytes in a number.
    """
    # "|" means that the type takes one byte, so that the byte order does not matter.
    order = ">" if descr[0] == ">" else "<"
    return struct.unpack(f"{order}{len(body) // unit}{LETTERS[descr[1:]]}", body)


def read_npz(path: Path, wanted: str, more: int = 0, maybe: str = "") -> list[Array]:
    """Read the arrays in an archive that match ``wanted``, in that order, followed by any that match ``maybe``.

    Args:
        path: The path of the archive.
        wanted: Regular expressions separated by spaces, one for each required array. Each must match the array's
            ``name:type:dimensions``.
        more: If positive, the unpacked arrays may be up to eight times as large as the archive, plus this number of
            bytes. If 0, they may be at most as large as the archive.
        maybe: The same as ``wanted``, for optional arrays. The archive must not contain any other arrays.

    Raises:
        RefusedError: The file is not an archive of intact arrays, has bytes outside its members, contains a name twice,
            unpacks to too many bytes, or has a missing or an unexpected array.
    """
    try:
        arrays_by_name = _read_arrays(path, more)
    except RefusedError:
        raise
    except Exception:  # zipfile, ast and struct raise many types of errors for damaged bytes
        raise RefusedError(f"{path.name}: not an archive of complete arrays, as np.savez writes it", 2) from None
    contents = " ".join(sorted(f"{name}:{array.kind}:{len(array.shape)}" for name, array in arrays_by_name.items()))
    parts = wanted.split() + [part for part in maybe.split() if part.split(":")[0] in arrays_by_name]
    # Both are sorted, so that the order of the members in the archive does not matter.
    pattern = " ".join(sorted(parts))
    need(re.fullmatch(pattern, contents), f"{path.name}: expected arrays {wanted}, got {contents!r}", 2)
    return [arrays_by_name[part.split(":")[0]] for part in parts]


def _read_arrays(path: Path, more: int) -> dict[str, Array]:
    """Read all arrays in an archive, keyed by name, and reject archives that two programs could read differently.

    Args:
        path: The path of the archive.
        more: If positive, the unpacked arrays may be up to eight times as large as the archive, plus this number of
            bytes. If 0, they may be at most as large as the archive.

    Raises:
        RefusedError: The archive has bytes outside its members, a name occurs twice, a member uses an unknown
            compression method, or the arrays are too large.
    """
    arrays_by_name: dict[str, Array] = {}
    remaining_bytes = (MAX_UNPACKED_RATIO if more else 1) * path.stat().st_size + more
    # Each stated size is subtracted before its member is unpacked, so that a ZIP bomb costs no memory.
    with zipfile.ZipFile(path) as archive:
        _check_layout(path, archive)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            remaining_bytes -= info.file_size
            is_acceptable = (
                name not in arrays_by_name and info.compress_type in (STORED, DEFLATED) and remaining_bytes >= 0
            )
            need(is_acceptable, f"{path.name}: {name}: twice, or too large", 2)
            # Ask for one byte more than stated. If the member were longer than its header says, the extra byte would be
            # read and the member's CRC would not match.
            info.file_size += 1
            contents = archive.open(info).read(info.file_size)
            arrays_by_name[name] = Array(contents, f"{path.name}: {name}")
    return arrays_by_name


def _check_layout(path: Path, archive: zipfile.ZipFile) -> None:
    """Check that an archive contains nothing that ``zipfile`` ignores but other programs could read as members.

    The members must follow one another from the first byte, followed by their directory and the end record. Archives
    above 2 GiB have 76 bytes of zip64 records before the end record.

    Args:
        path: The path of the archive.
        archive: The same archive, opened by ``zipfile``.

    Raises:
        RefusedError: The archive contains any other bytes.
    """
    # The fixed sizes are those in the ZIP specification (APPNOTE 4.3): 30 bytes for a local header, 46 for a central
    # one.
    offset, directory, members = 0, 0, archive.infolist()
    with path.open("rb") as file:
        for info in members:
            # The lengths of name and extra field are at byte 26 of a local header.
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            is_plain = info.orig_filename == info.filename and not info.flag_bits and not info.comment
            is_in_place = is_plain and info.header_offset == offset
            need(is_in_place, f"{path.name}: {info.filename!r}: malformed, or not directly after the one before", 2)
            offset += 30 + name + extra + info.compress_size
            directory += 46 + name + len(info.extra)
        file.seek(offset + directory + (76 if offset >= 2**31 else 0))
        counts = len(members), len(members), directory, min(offset, 2**32 - 1)
        # The required end record: one disk, the number of members twice, size and offset of the directory, no comment.
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *counts, 0)
        need(file.read() == end, f"{path.name}: expected its members and the end of the archive, and nothing else", 2)


def read_texts(path: Path, name: str) -> list[str]:
    """Read one array of strings from an archive, without checking the rest of the archive as :func:`read_npz` does.

    Args:
        path: The path of the archive.
        name: The name of the array.

    Raises:
        RefusedError: The array is missing, occurs twice, is too large, or is not a one-dimensional array of strings.
    """
    with zipfile.ZipFile(path) as archive:
        matches = [info for info in archive.infolist() if info.filename == f"{name}.npy"]
        is_acceptable = len(matches) == 1 and matches[0].file_size <= path.stat().st_size
        need(is_acceptable, f"{path.name}: {name}: missing, twice, or too large", 2)
        array = Array(archive.open(matches[0]).read(), f"{path.name}: {name}")
    need(array.kind == "U" and len(array.shape) == 1, f"{path.name}: {name}: not a list of texts", 2)
    return [*array.flat]
