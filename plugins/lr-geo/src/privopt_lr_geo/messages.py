"""The messages between a user and the server: plain arrays and numbers (section 4.2).

In one process the objects themselves are passed on. :func:`to_bytes` and :func:`from_bytes` are for a network.
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
"""Version of the serialised form. Other versions are refused."""
LARGEST_BYTES: Final = 2**31
"""Most bytes that the arrays of one message may unpack to."""


@frozen(kw_only=True)
class Terms:
    """The public terms of a round, which the server announces.

    Attributes:
        epsilon: Per unit of distance, as used in the program (a little smaller than promised).
        within: gamma, the largest distance of a required pair. None for every pair.
        obfuscation_radius: r_obf, in units of distance.
        exponent: f.
    """

    epsilon: float
    within: float | None
    obfuscation_radius: float
    exponent: float


@frozen(kw_only=True, eq=False)
class Package:
    """A user's upload: the coefficients of its program, with rows in random order and labelled columns.

    Attributes:
        distances: (n, n) distances between the records of its LR set.
        reach: (n, K) distances from them to every output. Only min(reach, r_obf) counts.
        costs: (n, K) prior-weighted costs, exact or estimated.
        free: (n, K) the negated indicator matrix Q. True for entries that are variables of their own.
    """

    distances: Floats
    reach: Floats
    costs: Floats
    free: Bools

    def __attrs_post_init__(self) -> None:
        """Check shapes and values, because a package comes from a stranger.

        Raises:
            InputError: Shapes do not fit, distances are negative, or costs are not finite.
        """
        rows, shape, faults = len(self.distances), np.shape(self.reach), Faults()
        square, rows_by_outputs = (rows, rows), (rows, *shape[1:])
        for key, kind, expected_shape in (
            ("distances", "f", square),
            ("reach", "f", rows_by_outputs),
            ("costs", "f", shape),
            ("free", "b", shape),
        ):
            array = np.asarray(getattr(self, key))
            if array.shape != expected_shape or array.dtype.kind != kind:
                faults.add(
                    "package", key, f"{array.dtype} of shape {array.shape}", f"kind {kind} of shape {expected_shape}"
                )
        faults.check()
        if not (np.isfinite(self.costs).all() and (self.distances >= 0).all() and (self.reach >= 0).all()):
            faults.add("package", "", "negative distances or infinite costs", "distances of at least 0, finite costs")
            faults.check()


@frozen(kw_only=True, eq=False)
class Answer:
    """The server's answer to one user: its matrix, in the package's order of rows.

    Attributes:
        z: (n, K) nearly feasible probabilities, which the user repairs and certifies itself.
    """

    z: Floats


@frozen(kw_only=True)
class Request:
    """A user's query of the cost reference table: a circle (Proposition 4.3).

    Attributes:
        centre: A random member of the user's LR set, by its number on the public map.
        radius: In units of distance.
    """

    centre: int
    radius: float


@frozen(kw_only=True, eq=False)
class Extract:
    """The server's answer to a query: the table inside the circle, without targets.

    Attributes:
        cells: (B,) numbers of cells, ascending.
        beta: (B, B) float32 expected costs between them in km.
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
        cls: Class of the message.
        raw: Its bytes.
        largest: Most bytes that it may unpack to. 2 GB by default.

    Raises:
        InputError: The bytes are no such message, have another version, or unpack to too many bytes.
    """
    name = cls.__name__.lower()
    try:
        parts = parse_npz(io.BytesIO(raw), largest=LARGEST_BYTES if largest is None else largest)
    except ValueError as error:
        raise InputError([Fault(name, "", f"other bytes ({error})", f"a message of class {name}")]) from None
    names = sorted(["format", *(field.name for field in fields(cls))])
    if sorted(parts) != names:
        raise InputError([Fault(name, "", f"parts {', '.join(sorted(parts))}", ", ".join(names))])
    version = parts.pop("format")
    if version.shape != () or version != FORMAT_VERSION:
        raise InputError(
            [Fault(name, "format", str(version), f"{FORMAT_VERSION}, as this version of privopt writes it")]
        )
    return cls(**{key: value if value.ndim else value.item() for key, value in parts.items()})
