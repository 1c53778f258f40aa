"""Archives in which two programs find two matrices: what one of them checks, another draws from."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from helpers.forgeries.changes import Forgery

END, SIZES = b"PK\5\6", 12


def archives_of() -> Iterator[Forgery]:
    """Every way to hide another matrix in mechanism.npz: all draws would be the first output."""
    for name, change in {
        "a name that is cut at a zero": cut_name,
        "one more than the end counts": add_uncounted,
        "another archive before": lambda path: path.write_bytes(
            b"".join(split_archive(path.read_bytes())) + forged_archive(path)
        ),
        "a second end, of zip64": lambda path: two_ends(path, forged_first=False),
        "a second end, of zip64, its members first": lambda path: two_ends(path, forged_first=True),
        "a comment": lambda path: path.write_bytes(path.read_bytes()[:-2] + b"\4\0text"),
        "bytes before the directory": separate_directory,
        "a comment of a member": add_comment,
        "another place of the directory": lambda path: change_end(path, 16, 1),
        "another number of the disk": lambda path: change_end(path, 4, 1),
    }.items():
        yield Forgery(name=f"mechanism.npz: {name}", change=lambda f, c=change: c(f / "mechanism.npz"))


def other_weights(path: Path) -> bytes:
    """Return an array of weights, all on the first output."""
    with np.load(path) as arrays:
        weights = np.zeros_like(arrays["weights"])
    weights[:, 0] = 2**63
    stream = io.BytesIO()
    np.save(stream, weights)
    return stream.getvalue()


def members(path: Path) -> list[tuple[str, bytes]]:
    """Names and bytes of an archive's arrays."""
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def zip_parts(parts: list[tuple[str, bytes]]) -> bytes:
    """Return an archive of members, whose names are written as they are."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # a name twice
        for name, contents in parts:
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, contents)
    return stream.getvalue()


def forged_archive(path: Path) -> bytes:
    """Return the archive with other weights."""
    return zip_parts([(name, other_weights(path) if name == "weights.npy" else raw) for name, raw in members(path)])


def cut_name(path: Path) -> None:
    """Add a member, whose name ``zipfile`` cuts to that of the first."""
    path.write_bytes(zip_parts([*members(path), ("weights.npy\0z", other_weights(path))]))


def add_uncounted(path: Path) -> None:
    """Add a member of the name, which the end's number leaves out, and ``zipfile`` reads."""
    parts = members(path)
    raw = bytearray(zip_parts([*parts, ("weights.npy", other_weights(path))]))
    struct.pack_into("<HH", raw, raw.rfind(END) + 8, len(parts), len(parts))
    path.write_bytes(bytes(raw))


def split_archive(raw: bytes) -> tuple[bytes, bytes]:
    """Return the members of an archive, and their directory."""
    end = raw.rfind(END)
    size, start = struct.unpack_from("<LL", raw, end + SIZES)
    return raw[:start], raw[start : start + size]


def shift_directory(directory: bytes, shift: int) -> bytes:
    """Return a directory whose members are ``by`` bytes further."""
    shifted, offset = bytearray(directory), 0
    while offset < len(directory):
        struct.pack_into("<L", shifted, offset + 42, struct.unpack_from("<L", directory, offset + 42)[0] + shift)
        offset += 46 + sum(struct.unpack_from("<HHH", directory, offset + 28))
    return bytes(shifted)


def two_ends(path: Path, forged_first: bool) -> None:
    """Two archives' members; the end of zip64, which ``zipfile`` prefers, speaks of the forged ones, the other not."""
    count, honest, forged = (
        len(members(path)),
        split_archive(zip_parts(members(path))),
        split_archive(forged_archive(path)),
    )
    first, second = (forged, honest) if forged_first else (honest, forged)
    raw = first[0] + second[0]
    shown_part, hidden = (
        shift_directory(honest[1], len(forged[0]) * forged_first),
        shift_directory(forged[1], len(honest[0]) * (not forged_first)),
    )
    raw, central_offset = raw + shown_part + hidden, len(raw)
    end_64 = struct.pack(
        "<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(hidden), central_offset + len(shown_part)
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(raw), 1)
    path.write_bytes(
        raw + end_64 + locator + struct.pack("<4s4H2LH", END, 0, 0, count, count, len(shown_part), central_offset, 0)
    )


def separate_directory(path: Path) -> None:
    """Put bytes between the members and their directory."""
    raw = path.read_bytes()
    size, start = struct.unpack_from("<LL", raw, len(raw) - 22 + SIZES)
    end = raw[-22 : SIZES - 22] + struct.pack("<LLH", size, start + 8, 0)
    path.write_bytes(raw[:start] + bytes(8) + raw[start : start + size] + end)


def add_comment(path: Path) -> None:
    """Put a comment to the first member."""
    parts = members(path)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for i, (name, contents) in enumerate(parts):
            info = zipfile.ZipInfo(name)
            info.comment = b"" if i else b"PK\5\6"
            archive.writestr(info, contents)
    path.write_bytes(stream.getvalue())


def change_end(path: Path, field: int, shift: int) -> None:
    """Make a number of the end, ``by`` more."""
    raw = bytearray(path.read_bytes())
    offset = len(raw) - 22 + field
    struct.pack_into("<H", raw, offset, struct.unpack_from("<H", raw, offset)[0] + shift)
    path.write_bytes(bytes(raw))
