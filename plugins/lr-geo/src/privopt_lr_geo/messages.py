"""The messages between users and the server, which consist of arrays and numbers (section 4.2 of Qiu et al., 2025).

Within one process, the objects are passed as they are. Over a network, :func:`to_bytes` serialises them and
:func:`from_bytes` parses them.
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
"""The version of the serialisation format. Messages with another version are rejected."""
LARGEST_BYTES: Final = 2**31
"""The largest total size, in bytes, of a message's unpacked arrays."""


@frozen(kw_only=True)
class Terms:
    """The public parameters that the server announces for a round.

    Attributes:
        epsilon: The program's epsilon per unit of distance, slightly smaller than the promised one.
        within: gamma, the largest distance between the records of a required pair, or None if all pairs are required.
        obfuscation_radius: r_obf, in the problem's unit of distance.
        exponent: The factor f, which determines how fast tied entries decrease with distance. A tied entry is a fixed
            multiple of a variable shared by all users. The multiple is proportional to exp(-epsilon f d), where d is
            the distance from the entry's record to its output, or r_obf if that is smaller.
    """

    epsilon: float
    within: float | None
    obfuscation_radius: float
    exponent: float


@frozen(kw_only=True, eq=False)
class Package:
    """A user's upload, which contains the coefficients of the user's part of the program.

    The n rows belong to the records in the user's LR set (the records near the user), in random order. The K columns
    belong to the outputs, in their public order.

    Attributes:
        distances: (n, n) The distances between the records.
        reach: (n, K) The distances from the records to the outputs. Distances above r_obf count as r_obf.
        costs: (n, K) The costs times the prior. They are either exact or upper bounds from the cost reference table.
        free: (n, K) Whether each entry is a separate variable rather than tied to a shared one. This is the negation of
            the indicator matrix Q in the paper by Qiu et al. (PoPETs 2025).
    """

    distances: Floats
    reach: Floats
    costs: Floats
    free: Bools

    def __attrs_post_init__(self) -> None:
        """Check shapes and values, because a package may come from an untrusted sender.

        Raises:
            InputError: Shapes or types do not match, distances are negative or NaN, or costs are not finite.
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
        # The comparisons below require arrays of numbers, so faults found so far are raised first.
        faults.check()
        # A distance of NaN fails the comparison, so it is rejected. An infinite distance is allowed and means that
        # there is no path.
        if not (np.isfinite(self.costs).all() and (self.distances >= 0).all() and (self.reach >= 0).all()):
            faults.add("package", "", "negative distances or infinite costs", "distances of at least 0, finite costs")
            faults.check()


@frozen(kw_only=True, eq=False)
class Answer:
    """The server's answer to one user: the user's matrix, with rows in the order of the package.

    Attributes:
        z: (n, K) The probabilities, which satisfy the constraints only up to a solver's tolerance. The user must repair
            and certify them.
    """

    z: Floats


@frozen(kw_only=True)
class Request:
    """A user's request for the part of the cost reference table inside a circle (Proposition 4.3).

    Attributes:
        centre: The map index of the record at the centre, which is drawn at random from the user's LR set.
        radius: The radius in the problem's unit of distance.
    """

    centre: int
    radius: float


@frozen(kw_only=True, eq=False)
class Extract:
    """The server's answer to a :class:`Request`, with the expected costs between the cells inside the circle.

    Attributes:
        cells: (B,) The indices of the cells inside the circle, in ascending order.
        beta: (B, B) The expected costs in km between these cells, in single precision.
    """

    cells: Ints
    beta: np.ndarray[Any, np.dtype[np.float32]]


def to_bytes(message: AttrsInstance) -> bytes:
    """Serialise a message as a compressed npz archive that contains its fields and the format version."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, format=np.int64(FORMAT_VERSION), **asdict(message))
    return buffer.getvalue()


def from_bytes(cls: type[T], raw: bytes, largest: int | None = None) -> T:
    """Parse a message that was serialised by :func:`to_bytes`.

    Args:
        cls: The class of the message, whose constructor may check the parsed arrays further.
        raw: The serialised message.
        largest: The maximum size of the unpacked message in bytes. The default is 2 GB.

    Raises:
        InputError: The bytes are not a message of this class, have a different format version, or unpack to more than
            the maximum size.
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
    if version.shape != () or version.dtype.kind not in "iu" or version != FORMAT_VERSION:
        actual = str(version) if version.shape == () and version.dtype.kind in "iu" else "no number"
        raise InputError([Fault(name, "format", actual, f"{FORMAT_VERSION}, as this version of privopt writes it")])
    # Numbers were stored as arrays without dimensions, and are converted back.
    return cls(**{key: value if value.ndim else value.item() for key, value in parts.items()})
