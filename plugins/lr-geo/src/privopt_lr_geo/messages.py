"""The messages between a user and the server: plain arrays and numbers (section 4.2).

In one process the messages themselves are handed over; :func:`to_bytes` and :func:`from_bytes` are for a wire.
"""

from __future__ import annotations

import io
from typing import Any, Final, TypeVar

import numpy as np
from attrs import AttrsInstance, asdict, fields, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, Faults, InputError
from privopt.files.archive import parse_npz

__all__ = ["Answer", "Extract", "Package", "Request", "Terms", "from_bytes", "to_bytes"]

T = TypeVar("T", bound=AttrsInstance)

FORMAT_VERSION: Final = 1
"""Version of the bytes; others are refused."""
LARGEST_BYTES: Final = 2**31
"""Bytes of arrays that one message may unpack to."""


@frozen(kw_only=True)
class Terms:
    """What the server announces to everybody.

    Attributes:
        epsilon: per unit of distance, as used in the program (a little stricter than promised).
        within: gamma, greatest distance of a required pair; None for every pair.
        obfuscation_radius: r_obf, in units of distance.
        exponent: f.
    """

    epsilon: float
    within: float | None
    obfuscation_radius: float
    exponent: float


@frozen(kw_only=True, eq=False)
class Package:
    """What a user uploads: coefficients of its program, rows in random order, columns labelled.

    Attributes:
        distances: (n, n) between the records of its LR set.
        reach: (n, K) from them to every output; only min(reach, r_obf) counts.
        costs: (n, K) prior-weighted costs, exact or estimated.
        free: (n, K) the indicator matrix Q, negated: entries that are variables of their own.
    """

    distances: Floats
    reach: Floats
    costs: Floats
    free: Bools

    def __attrs_post_init__(self) -> None:
        """Check it.

        Raises:
            InputError: shapes that do not fit, negative distances, or costs that are not finite.
        """
        rows, shape, faults = len(self.distances), np.shape(self.reach), Faults()
        square, wide = (rows, rows), (rows, *shape[1:])
        for key, kind, wanted in (
            ("distances", "f", square),
            ("reach", "f", wide),
            ("costs", "f", shape),
            ("free", "b", shape),
        ):
            found = np.asarray(getattr(self, key))
            if found.shape != wanted or found.dtype.kind != kind:
                faults.add("package", key, f"{found.dtype} of shape {found.shape}", f"kind {kind} of shape {wanted}")
        faults.check()
        if not (np.isfinite(self.costs).all() and (self.distances >= 0).all() and (self.reach >= 0).all()):
            faults.add("package", "", "negative distances or infinite costs", "distances of at least 0, finite costs")
            faults.check()


@frozen(kw_only=True, eq=False)
class Answer:
    """What the server sends back to one user: its matrix, in the package's order of rows.

    Attributes:
        z: (n, K) near-feasible probabilities; the user repairs and certifies them itself.
    """

    z: Floats


@frozen(kw_only=True)
class Request:
    """What a user asks of the cost reference table: a circle (Proposition 4.3).

    Attributes:
        centre: a random member of its LR set, by its number on the public map.
        radius: in units of distance.
    """

    centre: int
    radius: float


@frozen(kw_only=True, eq=False)
class Extract:
    """What the server sends: the table inside the circle, without targets.

    Attributes:
        cells: (B,) numbers of cells, ascending.
        beta: (B, B) float32 expected cost between them, km.
    """

    cells: Ints
    beta: np.ndarray[Any, np.dtype[np.float32]]


def to_bytes(message: AttrsInstance) -> bytes:
    """Return a message as bytes: an npz archive of its fields and the format's version."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, format=np.int64(FORMAT_VERSION), **asdict(message))
    return buffer.getvalue()


def from_bytes(cls: type[T], raw: bytes, largest: int | None = None) -> T:
    """Read a message of a class.

    Args:
        cls: of the message.
        raw: its bytes.
        largest: bytes that it may unpack to; 2 GB by default.

    Raises:
        InputError: bytes of something else, of another version, or of more than that.
    """
    name = cls.__name__.lower()
    try:
        parts = parse_npz(io.BytesIO(raw), largest=LARGEST_BYTES if largest is None else largest)
    except ValueError as error:
        raise InputError([Fault(name, "", f"other bytes ({error})", f"a message of class {name}")]) from None
    wanted = sorted(["format", *(field.name for field in fields(cls))])
    if sorted(parts) != wanted:
        raise InputError([Fault(name, "", f"parts {', '.join(sorted(parts))}", ", ".join(wanted))])
    version = parts.pop("format")
    if version.shape != () or version != FORMAT_VERSION:
        raise InputError(
            [Fault(name, "format", str(version), f"{FORMAT_VERSION}, as this version of privopt writes it")]
        )
    return cls(**{key: value if value.ndim else value.item() for key, value in parts.items()})
