"""Read and write arrays. Files are untrusted, so their headers are checked before any memory is allocated.

Before a large file is loaded, the memory required is estimated from the file's size and first bytes, and passed to the
caller's memory check (:func:`loading`, :func:`expect`).
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privopt.errors import Fault, Faults, InputError, UsageError, reason_of
from privopt.files.regular import Unreadable, open_regular

__all__ = [
    "expect",
    "loading",
    "loading_bytes",
    "npy_as_written",
    "npy_bytes",
    "npy_shape",
    "parse_npy",
    "parse_npz",
    "read_arrays",
    "read_npz",
]


_STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods that NumPy uses for archive members."""
_HEADER_BYTES: Final = 4096
"""The largest number of bytes that an archive member is assumed to occupy in addition to its values."""
_MAX_TEXT_BYTES: Final = 1024
"""The largest size of a string in an archive, in bytes."""
_LOCAL, _LENGTHS, _CENTRAL, _END_64 = 30, 26, 46, 76
"""Sizes and offsets in a zip archive, in bytes (APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16).

They are the size of a member's local header, the offset within this header of the lengths of the name and extra field,
the size of a directory entry, and the size of the zip64 records before the end record."""
_TYPE_BYTES = 256
"""The number of bytes to read from the start of an .npy header to find the type, which NumPy writes first."""
_STATED = re.compile(rb"""['"]descr['"]: ['"][<|>]""")
"""Matches an .npy header whose type specifies its byte order: little-endian, none (single bytes) or big-endian."""
_ORDERED = re.compile(rb"""['"]descr['"]: ['"][<|]""")
"""Matches an .npy header whose type specifies its byte order as little-endian or none (single bytes)."""


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an .npy header, and return the array's shape, whether it is in column-major order, and its data type.

    Raises:
        ValueError: The stream does not begin with an .npy header, or the array contains Python objects or records.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, columns_first, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} of the format")  # noqa: TRY301 - as NumPy's own
    except Exception as error:  # NumPy parses the header as a Python literal, so a wrong byte may raise any error
        raise ValueError(reason_of(error)) from None
    # Objects are pickles, which run code when they are loaded. Records are not needed here.
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"values of type {dtype}")
    if any(length < 0 for length in shape):
        raise ValueError(f"shape {shape}")
    return shape, columns_first, dtype


def npy_shape(head: bytes) -> tuple[tuple[int, ...], int]:
    """Return an array's shape and the number of bytes per value, given the first bytes of an ``.npy`` file.

    Raises:
        ValueError: The bytes are not an .npy header.
    """
    shape, _, dtype = _read_header(io.BytesIO(head))
    return shape, dtype.itemsize


def npy_bytes(array: object) -> bytes:
    """Return an array as the bytes of an ``.npy`` file.

    Raises:
        UsageError: The array contains Python objects, which could only be stored as executable pickles.
    """
    stream, values = io.BytesIO(), np.asarray(array)
    if values.dtype.hasobject:
        expectation = "an array of a type of numbers"
        advice = "array.astype(float) makes doubles of it"
        raise UsageError(f"expected {expectation}, got one of type {values.dtype}: {advice}")
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()


def parse_npy(contents: bytes) -> NDArray[Any]:
    """Return the array in an .npy file, as a read-only view of the file's bytes.

    Raises:
        ValueError: The bytes are not an .npy file, or the file's size differs from the size implied by its header.
    """
    stream = io.BytesIO(contents)
    shape, columns_first, dtype = _read_header(stream)
    start = stream.tell()
    expected_bytes = math.prod(shape) * dtype.itemsize
    if len(contents) - start != expected_bytes:
        raise ValueError(f"{len(contents) - start:,} bytes of values, but its header says {expected_bytes:,}")
    if not expected_bytes:  # frombuffer rejects an empty buffer
        return np.empty(shape, dtype)
    # The array shares the memory of the file's bytes.
    flat = np.frombuffer(contents, dtype, offset=start)
    return flat.reshape(shape, order="F" if columns_first else "C")


def npy_as_written(contents: bytes) -> bytes:
    """Convert an ``.npy`` file to the form written by NumPy: version 1.0, with the byte order in the header.

    Published arrays have this form, no matter which program wrote the original file.
    """
    head = contents[:_TYPE_BYTES]
    is_as_written = head[6:8] == b"\x01\x00" and _STATED.search(head)
    return contents if is_as_written else npy_bytes(parse_npy(contents))


def parse_npz(stream: BinaryIO, *, largest: int) -> dict[str, NDArray[Any]]:
    """Return the arrays in an .npz file by name.

    Args:
        stream: The file, which must be seekable.
        largest: The maximum total size of the arrays in bytes. Larger archives are rejected before they are unpacked.

    Raises:
        ValueError: The stream is not an .npz archive, a name occurs twice, or the arrays are too large.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_layout(archive, stream)
            return _read_members(archive, largest)
    except Exception as error:  # NumPy, zipfile and zlib raise many types of errors for invalid bytes
        raise ValueError(reason_of(error)) from None


def _check_layout(archive: zipfile.ZipFile, stream: BinaryIO) -> None:
    """Check that an archive contains only its members and their directory, so that all programs read the same data.

    ``zipfile`` accepts extra bytes before and between members, truncates names at a zero byte, and prefers the second
    zip64 end record to the first. Other programs handle these cases differently, so they could read different data.

    Raises:
        ValueError: The archive contains anything else.
    """
    offset, directory, members = 0, 0, archive.infolist()
    for info in members:
        stream.seek(info.header_offset + _LENGTHS)
        name, extra = struct.unpack("<HH", stream.read(4))
        if info.header_offset != offset or info.orig_filename != info.filename or info.flag_bits or info.comment:
            raise ValueError(f"{info.filename!r} not as solve writes members: one after another, with plain names")
        # Each member must begin where the previous one ends.
        offset += _LOCAL + name + extra + info.compress_size
        directory += _CENTRAL + name + len(info.extra)
    # The end record contains 0 disks, the number of members twice, the directory's size and offset, and no comment. An
    # offset that does not fit into 32 bits is written as all ones, and is stored in the zip64 record before it.
    directory_fields = len(members), len(members), directory, min(offset, 0xFFFFFFFF)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *directory_fields, 0)
    stream.seek(offset + directory + (_END_64 if offset > zipfile.ZIP64_LIMIT else 0))
    if (tail := stream.read()) != end:
        raise ValueError(f"{len(tail):,} bytes after its {len(members)} members, which are not the end of the archive")


def _read_members(archive: zipfile.ZipFile, largest: int) -> dict[str, NDArray[Any]]:
    """Return all arrays in an archive by name. Their total size must be at most ``largest`` bytes.

    Raises:
        ValueError: A member is not an array in the form written by ``solve``, or the arrays are too large.
    """
    arrays: dict[str, NDArray[Any]] = {}
    remaining_bytes = largest
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            raise ValueError(f"{name!r}, which is not an array")
        if name in arrays:
            raise ValueError(f"{name!r} twice")
        if info.compress_type not in _STORED:
            raise ValueError(f"{name!r} in a compression that NumPy does not write")
        # The member is opened again below, so that the header is parsed from its beginning.
        with archive.open(info) as member:
            head = member.read(_TYPE_BYTES)
        with archive.open(info) as member:
            shape, _, dtype = _read_header(member)
            size = math.prod(shape) * dtype.itemsize
            if member.tell() + size != info.file_size:
                raise ValueError(f"{name!r} of {info.file_size:,} bytes, but its header says {size:,} of values")
        if head[6:8] != b"\x01\x00" or not _ORDERED.search(head):
            raise ValueError(f"{name!r} in another form than solve writes: version 1.0, little-endian")
        remaining_bytes -= info.file_size
        if remaining_bytes < 0:
            raise ValueError(f"more than {largest:,} bytes of arrays")
        # Expect one byte more than declared, so that the CRC of a member that is too long does not match.
        info.file_size += 1
        with archive.open(info) as member:
            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            member.read(2)  # zipfile compares the CRC only when the end of a member is read
    return arrays


def read_npz(
    path: Path,
    expectation: str,
    *,
    only: Collection[str] | None = None,
    largest: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays in an .npz file by name, after the checks described in :func:`parse_npz`.

    Args:
        path: The file, which must not be a link.
        expectation: A description of the expected contents, for messages.
        only: The names of the arrays that the file may contain. If None, any names are allowed.
        largest: The maximum total size of the arrays in bytes. The default is the size of the file, because
            ``np.savez`` does not compress.

    Raises:
        InputError: The file is missing, is not an .npz archive, is too large, or contains an array that is not in
            ``only``.
    """
    try:
        with open_regular(path, links=False) as (stream, size):
            arrays = parse_npz(stream, largest=size if largest is None else largest)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.actual, expectation)]) from None
    except ValueError as error:
        raise InputError([Fault(str(path), "", f"no such archive ({error})", expectation)]) from None
    unknown = [name for name in arrays if only is not None and name not in only]
    if unknown:
        raise InputError([Fault(str(path), name, "an unknown array", expectation) for name in unknown])
    return arrays


Shape = tuple[int | str | None, ...]
"""The axes of an array. Each is a length, a name shared by axes of equal length, or None for any length."""


def read_arrays(
    path: Path,
    required: Mapping[str, tuple[DTypeLike, Shape]],
    *,
    optional: Mapping[str, tuple[DTypeLike, Shape]] | None = None,
    largest: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays in a release's .npz file after checking their names, types and shapes.

    ::

        read_arrays(path, {"weights": (np.uint64, ("N", "K")), "records": (np.str_, ("N",))})

    Args:
        path: The file, which must be a regular file and not a link.
        required: The type and shape of each array by name. ``np.str_`` stands for strings of any length.
        optional: The type and shape of each array that may be absent, by name.
        largest: The maximum total size of the arrays in bytes, which defaults to the file's size. It is used only if an
            axis may have any length, because otherwise the types and shapes determine the maximum.

    Returns:
        Read-only arrays by name. The caller must check their values, for example whether they are finite and
        non-negative.

    Raises:
        InputError: The file is missing, is not an .npz archive, or is larger than its arrays can be. This is also
            raised if arrays are missing or do not meet the requirements, in which case the error names each of them.
    """
    all_types = {**required, **(optional or {})}
    arrays = read_npz(path, f"arrays {', '.join(all_types)}", only=all_types, largest=_max_bytes(all_types) or largest)
    # The length of each named axis, taken from the first array that has the axis, is stored in `sides`.
    faults, sides = Faults(), dict[str, int]()
    for name, (dtype, shape) in all_types.items():
        expectation = f"{np.dtype(dtype).type.__name__.rstrip('_')} of shape {_shape_text(shape)}"
        array = arrays.get(name)
        if array is None:
            faults.extend([Fault(str(path), name, "no such array", expectation)] if name in required else [])
        elif not (_has_type(array, np.dtype(dtype)) and _has_shape(array, shape, sides)):
            lengths = (
                f" with {', '.join(f'{name_of_side} = {n}' for name_of_side, n in sides.items())}" if sides else ""
            )
            faults.add(
                str(path), name, f"{array.dtype.name} of shape {_shape_text(array.shape)}", expectation + lengths
            )
        else:
            array.setflags(write=False)
    faults.check()
    return arrays


def _shape_text(shape: Shape) -> str:
    """Return a shape as text for messages, such as ``(N, 3, any)``."""
    return f"({', '.join('any' if length is None else str(length) for length in shape)})"


def _has_type(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether an array has the given data type. Strings may have any length, but must be valid Unicode."""
    if dtype.kind != "U" or array.dtype.kind != "U":
        return array.dtype == dtype
    # NumPy stores strings as code points without checking them. Converting them to str does.
    try:
        array.tolist()
    except ValueError:
        return False
    return True


def _has_shape(array: NDArray[Any], shape: Shape, sides: dict[str, int]) -> bool:
    """Return whether an array has the given shape, whose axes may be named.

    ``sides`` contains the lengths of the named axes seen so far. The lengths of newly seen ones are added.
    """
    if array.ndim != len(shape):
        return False
    lengths = [
        sides.setdefault(expected, n) if isinstance(expected, str) else expected
        for expected, n in zip(shape, array.shape, strict=True)
    ]
    return all(expected in (None, n) for expected, n in zip(lengths, array.shape, strict=True))


def _max_bytes(types: Mapping[str, tuple[DTypeLike, Shape]]) -> int | None:
    """Return the maximum total size, in bytes, of arrays with these types, or None if an axis may have any length."""
    total = 0
    for dtype, shape in types.values():
        lengths = [length for length in shape if isinstance(length, int)]
        if len(lengths) < len(shape):
            return None
        # np.str_ has no fixed size.
        total += _HEADER_BYTES + (np.dtype(dtype).itemsize or _MAX_TEXT_BYTES) * math.prod(lengths)
    return total


HEAD: Final = 1 << 16
"""The number of bytes at the start of a file that are read to determine its kind and shape."""
MIN_CHECKED_BYTES: Final = 16e6
"""The number of bytes below which allocations are not announced.

These allocations are covered by the mechanism's own announcement, which is made once the problem is known.
"""
BYTES_PER_CSV_BYTE: Final = 14.0
"""The memory needed for a CSV file's text, cells and numbers, in bytes per byte of the file (measured: 11 to 15)."""
BYTES_PER_PARQUET_CELL: Final = 150.0
"""The memory needed to read a Parquet file, in bytes per cell: large because the file is first converted to CSV."""
DOUBLES_PER_VALUE: Final = 5.0
"""The memory needed to check and copy an array, in doubles per value (measured: 4.1 to 5.1)."""

_NEED: ContextVar[Callable[[float, str], None] | None] = ContextVar("_NEED", default=None)
"""The function to call before a large allocation, or None outside a :func:`loading` block."""


@contextmanager
def loading(need: Callable[[float, str], None]) -> Iterator[None]:
    """Call ``need`` before anything large is loaded within the block.

    Args:
        need: A function that takes a number of bytes and a plural noun for the objects that need this memory. It raises
            an error if there is not enough memory.
    """
    token = _NEED.set(need)
    try:
        yield
    finally:
        _NEED.reset(token)


def expect(needed: float, subject: str) -> None:
    """Announce that ``needed`` bytes are about to be allocated for ``subject``, a plural noun.

    Within a :func:`loading` block, this calls the block's ``need`` function if ``needed`` is at least
    :data:`MIN_CHECKED_BYTES`. That function may raise an error. Outside such a block, nothing happens.
    """
    need = _NEED.get()
    if need is not None and needed >= MIN_CHECKED_BYTES:
        need(needed, subject)


def loading_bytes(stream: BufferedReader, size: int) -> float:
    """Estimate the number of bytes of memory required to read a table, an array or a text file.

    The estimate is 0 if the file cannot be read at all.

    Args:
        stream: A file named in a problem (.npy, .csv, .parquet or other), positioned at its start. It is left at its
            start.
        size: The size of the file in bytes.
    """
    try:
        head = stream.read(HEAD)
        stream.seek(0)
    except OSError:  # the code that reads the file next reports the reason
        return 0.0
    if head.startswith(b"\x93NUMPY"):
        try:
            shape, bytes_each = npy_shape(head)
            values = math.prod(shape)
            # A truncated array is rejected, so its values need no memory.
            is_complete = values * bytes_each <= size
            return size + 8.0 * DOUBLES_PER_VALUE * values if is_complete else float(size)
        except ValueError:
            return float(size)
    if head.startswith(b"PAR1"):
        return size + BYTES_PER_PARQUET_CELL * _count_cells(stream)
    # A text file with a comma in its first line is treated as a CSV table.
    return BYTES_PER_CSV_BYTE * size if b"," in head.partition(b"\n")[0] else float(size)


def _count_cells(stream: BufferedReader) -> float:
    """Return the number of cells (rows times columns) stated in a Parquet file's footer, or 0 if it is unreadable."""
    import polars as pl

    try:
        frame = pl.scan_parquet(stream)
        return float(frame.select(pl.len()).collect().item()) * len(frame.collect_schema())
    except (pl.exceptions.PolarsError, OSError):
        return 0.0
