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
        "one more than the end counts": uncounted,
        "another archive before": lambda path: path.write_bytes(b"".join(parted(path.read_bytes())) + forged(path)),
        "a second end, of zip64": lambda path: two_ends(path, forged_first=False),
        "a second end, of zip64, its members first": lambda path: two_ends(path, forged_first=True),
        "a comment": lambda path: path.write_bytes(path.read_bytes()[:-2] + b"\4\0text"),
        "bytes before the directory": apart,
        "a comment of a member": commented,
        "another place of the directory": lambda path: moved(path, 16, 1),
        "another number of the disk": lambda path: moved(path, 4, 1),
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


def zipped(parts: list[tuple[str, bytes]]) -> bytes:
    """Return an archive of members, whose names are written as they are."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
        warnings.simplefilter("ignore")  # a name twice
        for name, contents in parts:
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, contents)
    return stream.getvalue()


def forged(path: Path) -> bytes:
    """Return the archive with other weights."""
    return zipped([(name, other_weights(path) if name == "weights.npy" else raw) for name, raw in members(path)])


def cut_name(path: Path) -> None:
    """Add a member, whose name ``zipfile`` cuts to that of the first."""
    path.write_bytes(zipped([*members(path), ("weights.npy\0z", other_weights(path))]))


def uncounted(path: Path) -> None:
    """Add a member of the name, which the end's number leaves out, and ``zipfile`` reads."""
    parts = members(path)
    raw = bytearray(zipped([*parts, ("weights.npy", other_weights(path))]))
    struct.pack_into("<HH", raw, raw.rfind(END) + 8, len(parts), len(parts))
    path.write_bytes(bytes(raw))


def parted(raw: bytes) -> tuple[bytes, bytes]:
    """Return the members of an archive, and their directory."""
    end = raw.rfind(END)
    size, start = struct.unpack_from("<LL", raw, end + SIZES)
    return raw[:start], raw[start : start + size]


def further(directory: bytes, by: int) -> bytes:
    """Return a directory whose members are ``by`` bytes further."""
    moved_on, at = bytearray(directory), 0
    while at < len(directory):
        struct.pack_into("<L", moved_on, at + 42, struct.unpack_from("<L", directory, at + 42)[0] + by)
        at += 46 + sum(struct.unpack_from("<HHH", directory, at + 28))
    return bytes(moved_on)


def two_ends(path: Path, forged_first: bool) -> None:
    """Two archives' members; the end of zip64, which ``zipfile`` prefers, speaks of the forged ones, the other not."""
    count, honest, other = len(members(path)), parted(zipped(members(path))), parted(forged(path))
    first, second = (other, honest) if forged_first else (honest, other)
    raw = first[0] + second[0]
    shown, hidden = (
        further(honest[1], len(other[0]) * forged_first),
        further(other[1], len(honest[0]) * (not forged_first)),
    )
    raw, at = raw + shown + hidden, len(raw)
    end_64 = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(hidden), at + len(shown))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(raw), 1)
    path.write_bytes(raw + end_64 + locator + struct.pack("<4s4H2LH", END, 0, 0, count, count, len(shown), at, 0))


def apart(path: Path) -> None:
    """Put bytes between the members and their directory."""
    raw = path.read_bytes()
    size, start = struct.unpack_from("<LL", raw, len(raw) - 22 + SIZES)
    end = raw[-22 : SIZES - 22] + struct.pack("<LLH", size, start + 8, 0)
    path.write_bytes(raw[:start] + bytes(8) + raw[start : start + size] + end)


def commented(path: Path) -> None:
    """Put a comment to the first member."""
    parts = members(path)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for i, (name, contents) in enumerate(parts):
            info = zipfile.ZipInfo(name)
            info.comment = b"" if i else b"PK\5\6"
            archive.writestr(info, contents)
    path.write_bytes(stream.getvalue())


def moved(path: Path, at: int, by: int) -> None:
    """Make a number of the end, ``by`` more."""
    raw = bytearray(path.read_bytes())
    place = len(raw) - 22 + at
    struct.pack_into("<H", raw, place, struct.unpack_from("<H", raw, place)[0] + by)
    path.write_bytes(bytes(raw))
