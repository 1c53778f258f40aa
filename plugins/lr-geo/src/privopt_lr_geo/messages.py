"""The messages between users and the server, made up of arrays and numbers (Qiu et al., PoPETs 2025, section 4.2).

Within one process, the message objects are passed directly. Over a network, :func:`to_bytes` and :func:`from_bytes`
serialise and parse them.
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
        within: gamma, the largest distance between the records of a required pair; None if all pairs are required.
        obfuscation_radius: r_obf, in the problem's unit of distance.
        exponent: The factor f, which sets how fast tied entries fall with distance: a tied entry is proportional to
            exp(-epsilon f d), where d is the distance from its record to its output, but at most r_obf. A tied entry is
            a fixed multiple of a variable that all users share.
    """

    epsilon: float
    within: float | None
    obfuscation_radius: float
    exponent: float


@frozen(kw_only=True, eq=False)
class Package:
    """A user's upload: the coefficients of the user's part of the program.

    The n rows belong to the records in the user's LR set, the records near the user, in random order. The K columns
    belong to the outputs, in their public order.

    Attributes:
        distances: (n, n) The distances between the records.
        reach: (n, K) The distances from the records to the outputs. Only min(reach, r_obf) matters.
        costs: (n, K) The costs times the prior, exact or estimated.
        free: (n, K) Whether an entry is a separate variable instead of being tied to a shared one. This is the negation
            of the paper's indicator matrix Q.
    """

    distances: Floats
    reach: Floats
    costs: Floats
    free: Bools

    def __attrs_post_init__(self) -> None:
        """Check shapes and values, because a package comes from an untrusted sender.

        Raises:
            InputError: Shapes do not match, distances are negative, or costs are not finite.
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
        # The check ends here if shapes or types are wrong, because the comparisons below need arrays of numbers.
        faults.check()
        # NaN fails every comparison and so is refused. An infinite distance is allowed; it means that there is no path.
        if not (np.isfinite(self.costs).all() and (self.distances >= 0).all() and (self.reach >= 0).all()):
            faults.add("package", "", "negative distances or infinite costs", "distances of at least 0, finite costs")
            faults.check()


@frozen(kw_only=True, eq=False)
class Answer:
    """The server's answer to one user: the user's matrix, with rows in the order of the user's package.

    Attributes:
        z: (n, K) The probabilities, which satisfy the constraints only up to a solver's tolerance. The user repairs and
            certifies them.
    """

    z: Floats


@frozen(kw_only=True)
class Request:
    """A user's request for the part of the cost reference table inside a circle (Proposition 4.3).

    Attributes:
        centre: The map index of the record at the centre, which is chosen at random from the user's LR set.
        radius: The radius in the problem's unit of distance.
    """

    centre: int
    radius: float


@frozen(kw_only=True, eq=False)
class Extract:
    """The server's answer to a :class:`Request`: the expected costs between the cells inside the circle.

    Attributes:
        cells: (B,) The indices of the cells inside the circle, ascending.
        beta: (B, B) The expected costs between these cells in km, in single precision.
    """

    cells: Ints
    beta: np.ndarray[Any, np.dtype[np.float32]]


def to_bytes(message: AttrsInstance) -> bytes:
    """Serialise a message to a compressed npz archive that contains its fields and the format version."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, format=np.int64(FORMAT_VERSION), **asdict(message))
    return buffer.getvalue()


def from_bytes(cls: type[T], raw: bytes, largest: int | None = None) -> T:
    """Parse a message that :func:`to_bytes` serialised.

    Args:
        cls: The class of the message. It may check the parsed arrays further.
        raw: The serialised message.
        largest: The largest accepted size of the unpacked message in bytes; 2 GB by default.

    Raises:
        InputError: The bytes are not a message of this class, have another format version, or unpack to too many bytes.
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
    # Scalars were stored as arrays without dimensions, and are converted back.
    return cls(**{key: value if value.ndim else value.item() for key, value in parts.items()})
