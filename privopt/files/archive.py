"""Read and write arrays of untrusted files. Headers are checked before any memory is allocated."""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privopt.errors import Fault, Faults, InputError, UsageError, reason_of
from privopt.files.regular import Unreadable, open_regular

__all__ = ["npy_as_written", "npy_bytes", "npy_shape", "parse_npy", "parse_npz", "read_arrays", "read_npz"]

_STORED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADER_BYTES: Final = 4096
"""Bytes that a member of an archive takes in addition to its values, at most."""
_MAX_TEXT_BYTES: Final = 1024
"""Bytes of a text in an archive, at most."""
_LOCAL, _LENGTHS, _CENTRAL, _END_64 = 30, 26, 46, 76
"""Bytes of a zip archive: a member's head, where in it the lengths of its name and extra field stand, its entry in the
directory, and what zip64 puts before the end (APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16)."""
_TYPE_BYTES = 256  # bytes that hold the type, which NumPy writes first
_STATED = re.compile(rb"""['"]descr['"]: ['"][<|>]""")
_ORDERED = re.compile(rb"""['"]descr['"]: ['"][<|]""")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an .npy array: its shape, whether columns come first, and its type.

    Raises:
        ValueError: it begins with none that can be taken.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, columns_first, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} of the format")  # noqa: TRY301 - as NumPy's own
    except Exception as error:  # NumPy reads the header as Python's own text: a wrong byte may raise anything
        raise ValueError(reason_of(error)) from None
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"values of type {dtype}")
    if any(length < 0 for length in shape):
        raise ValueError(f"shape {shape}")
    return shape, columns_first, dtype


def npy_shape(head: bytes) -> tuple[tuple[int, ...], int]:
    """Return the shape and the bytes of a value, from the first bytes of an ``.npy`` file.

    Raises:
        ValueError: the bytes are not such a header.
    """
    shape, _, dtype = _read_header(io.BytesIO(head))
    return shape, dtype.itemsize


def npy_bytes(array: object) -> bytes:
    """Return an array as an ``.npy`` file.

    Raises:
        UsageError: the array holds Python objects, which the file could only hold as code to run.
    """
    stream, values = io.BytesIO(), np.asarray(array)
    if values.dtype.hasobject:
        wanted = "an array of a type of numbers"
        raise UsageError(f"expected {wanted}, got one of type {values.dtype}: array.astype(float) makes doubles of it")
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()


def parse_npy(contents: bytes) -> NDArray[Any]:
    """Return the array of an .npy file, as a read-only view of its bytes.

    Raises:
        ValueError: the bytes are not an .npy file, or fewer or more than its header says.
    """
    stream = io.BytesIO(contents)
    shape, columns_first, dtype = _read_header(stream)
    start = stream.tell()
    expected_bytes = math.prod(shape) * dtype.itemsize
    if len(contents) - start != expected_bytes:
        raise ValueError(f"{len(contents) - start:,} bytes of values, where its header says {expected_bytes:,}")
    if not expected_bytes:
        return np.empty(shape, dtype)
    # A view: the array shares the memory of the file's bytes.
    flat = np.frombuffer(contents, dtype, offset=start)
    return flat.reshape(shape, order="F" if columns_first else "C")


def npy_as_written(contents: bytes) -> bytes:
    """Return an ``.npy`` file in the form that NumPy writes: version 1.0, with the byte order."""
    head = contents[:_TYPE_BYTES]
    is_as_written = head[6:8] == b"\x01\x00" and _STATED.search(head)
    return contents if is_as_written else npy_bytes(parse_npy(contents))


def parse_npz(stream: BinaryIO, *, largest: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Args:
        stream: the file, which can be searched.
        largest: bytes of all its arrays together; more are refused before they are unpacked.

    Raises:
        ValueError: the bytes are not such an archive, a name occurs twice, or arrays are too large.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_layout(archive, stream)
            return _read_members(archive, largest)
    except Exception as error:  # NumPy, zip and zlib raise whatever they like at a wrong byte
        raise ValueError(reason_of(error)) from None


def _check_layout(archive: zipfile.ZipFile, stream: BinaryIO) -> None:
    """Check that an archive has its members, its directory, and nothing else, so that all readers agree on it.

    ``zipfile`` accepts bytes before and between members, cuts a name at a zero byte, and prefers the second end of
    zip64 to the first. Other programs do not, and would read another matrix.

    Raises:
        ValueError: The archive has other contents.
    """
    offset, directory, members = 0, 0, archive.infolist()
    for info in members:
        stream.seek(info.header_offset + _LENGTHS)
        name, extra = struct.unpack("<HH", stream.read(4))
        if info.header_offset != offset or info.orig_filename != info.filename or info.flag_bits or info.comment:
            raise ValueError(f"{info.filename!r} not as solve writes members: one behind another, of plain names")
        # Each member must begin where the one before ends.
        offset += _LOCAL + name + extra + info.compress_size
        directory += _CENTRAL + name + len(info.extra)
    places = len(members), len(members), directory, min(offset, 0xFFFFFFFF)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *places, 0)
    stream.seek(offset + directory + (_END_64 if offset > zipfile.ZIP64_LIMIT else 0))
    if (tail := stream.read()) != end:
        raise ValueError(f"{len(tail):,} bytes behind its members, which are not the end of {len(members)}")


def _read_members(archive: zipfile.ZipFile, largest: int) -> dict[str, NDArray[Any]]:
    """Read all arrays of an archive, within a limit on their total size."""
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
        with archive.open(info) as member:
            head = member.read(_TYPE_BYTES)
        with archive.open(info) as member:
            shape, _, dtype = _read_header(member)
            size = math.prod(shape) * dtype.itemsize
            if member.tell() + size != info.file_size:
                raise ValueError(f"{name!r} of {info.file_size:,} bytes, where its header says {size:,} of values")
        if head[6:8] != b"\x01\x00" or not _ORDERED.search(head):
            raise ValueError(f"{name!r} in another form than solve writes: version 1.0, little-endian")
        remaining_bytes -= info.file_size
        if remaining_bytes < 0:
            raise ValueError(f"more than {largest:,} bytes of arrays")
        info.file_size += 1  # were there more than is stated, this much would be read, and have another sum
        with archive.open(info) as member:
            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            member.read(2)  # the end of a member is where zipfile compares its sum
    return arrays


def read_npz(
    path: Path,
    expectation: str,
    *,
    only: Collection[str] | None = None,
    largest: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Read an .npz file; see :func:`parse_npz`.

    Args:
        path: of the file.
        wanted: what it should hold, for faults.
        only: names of the arrays that may be in it; default: any.
        largest: bytes of all arrays together; default: those of the file, which is what ``np.savez`` writes.

    Raises:
        InputError: missing, no such archive, too large, or with an array that has no place in it.
    """
    try:
        with open_regular(path, links=False) as (stream, size):
            arrays = parse_npz(stream, largest=size if largest is None else largest)
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, expectation)]) from None
    except ValueError as error:
        raise InputError([Fault(str(path), "", f"no such archive ({error})", expectation)]) from None
    unknown = [name for name in arrays if only is not None and name not in only]
    if unknown:
        raise InputError([Fault(str(path), name, "an array that nothing reads", expectation) for name in unknown])
    return arrays


Shape = tuple[int | str | None, ...]
"""Sides of an array: a length; a name, where sides of one name have one length; None for any length."""


def read_arrays(
    path: Path,
    required: Mapping[str, tuple[DTypeLike, Shape]],
    *,
    optional: Mapping[str, tuple[DTypeLike, Shape]] | None = None,
    largest: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an .npz file of a release: exactly these names, types and shapes.

    ::

        read_arrays(path, {"weights": (np.uint64, ("N", "K")), "records": (np.str_, ("N",))})

    Args:
        path: of the file: a regular one, no link.
        wanted: type and shape by name; ``np.str_`` takes texts of any length.
        optional: likewise, for arrays that may be absent.
        largest: bytes of all arrays together where a side may have any length; default: those of the file then, as
            ``np.savez`` writes them.

    Returns:
        Read-only arrays by name. What their values must be (finite, at least 0) is the caller's to say.

    Raises:
        InputError: missing, no such archive, larger than its arrays can be, or other arrays; each that is wrong is
            named.
    """
    all_types = {**required, **(optional or {})}
    arrays = read_npz(path, f"arrays {', '.join(all_types)}", only=all_types, largest=_max_bytes(all_types) or largest)
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
    return f"({', '.join('any' if length is None else str(length) for length in shape)})"


def _has_type(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether an array has a type; texts of any length are one type."""
    if dtype.kind != "U" or array.dtype.kind != "U":
        return array.dtype == dtype
    try:
        array.tolist()
    except ValueError:  # numbers that are not characters
        return False
    return True


def _has_shape(array: NDArray[Any], shape: Shape, sides: dict[str, int]) -> bool:
    """Return whether an array has a shape. A new name of a side gets the side's length."""
    if array.ndim != len(shape):
        return False
    lengths = [
        sides.setdefault(expected, n) if isinstance(expected, str) else expected
        for expected, n in zip(shape, array.shape, strict=True)
    ]
    return all(expected in (None, n) for expected, n in zip(lengths, array.shape, strict=True))


def _max_bytes(types: Mapping[str, tuple[DTypeLike, Shape]]) -> int | None:
    """Return the most bytes that all arrays can take together; None if a side may have any length."""
    total = 0
    for dtype, shape in types.values():
        lengths = [length for length in shape if isinstance(length, int)]
        if len(lengths) < len(shape):
            return None
        total += _HEADER_BYTES + (np.dtype(dtype).itemsize or _MAX_TEXT_BYTES) * math.prod(lengths)
    return total
