"""What passes between a user and the server, and nothing else: plain arrays and numbers, as bytes (section 4.2)."""

from __future__ import annotations

import io
from typing import Final, TypeVar

import numpy as np
from attrs import AttrsInstance, asdict, fields, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.errors import Fault, InputError
from privopt.files.archive import parse_npz

__all__ = ["Answer", "Package", "Terms", "pack", "unpack"]


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


LARGEST: Final = 2**31
"""Bytes of arrays that one package may unpack to."""

_KINDS: Final = {"f": "numbers", "i": "whole numbers", "b": "truth values"}


T = TypeVar("T", bound=AttrsInstance)


def pack(value: AttrsInstance) -> bytes:
    """An attrs object of arrays and numbers as bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **asdict(value))
    return buffer.getvalue()


def unpack(cls: type[T], raw: bytes) -> T:
    """Back again.

    Raises:
        InputError: bytes of something else.
    """
    names = [field.name for field in fields(cls)]
    try:
        parts = parse_npz(io.BytesIO(raw), largest=LARGEST)
    except ValueError as error:
        raise InputError([Fault("package", "", f"bytes that are no package ({error})", "a package")]) from None
    if sorted(parts) != sorted(names):
        raise InputError([Fault("package", "", f"parts {', '.join(parts)}", ", ".join(names))])
    return cls(**parts)


@frozen(kw_only=True, eq=False)
class Package:
    """What a user uploads: coefficients of its program, rows in random order, columns labelled.

    Attributes:
        distances: (n, n) between the records of its LR set.
        reach: (n, K) from them to every output, of which only min(reach, r_obf) counts.
        costs: (n, K) prior-weighted costs, exact or estimated.
        free: (n, K) the indicator matrix Q, negated: entries that are variables of their own.
    """

    distances: Floats
    reach: Floats
    costs: Floats
    free: NDArray[np.bool_]

    def to_bytes(self) -> bytes:
        """The message as bytes."""
        return pack(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Package:
        """Read and check.

        Raises:
            InputError: not a package, or shapes that do not fit.
        """
        made: Package = unpack(cls, raw)
        rows = len(made.distances)
        shapes = {"distances": (rows, rows), "costs": made.reach.shape, "free": made.reach.shape}
        faults = [
            Fault("package", name, f"shape {getattr(made, name).shape}", f"shape {shape}")
            for name, shape in shapes.items()
            if getattr(made, name).shape != shape
        ]
        kinds = {"distances": "f", "reach": "f", "costs": "f", "free": "b"}
        for name, kind in kinds.items():
            if getattr(made, name).dtype.kind != kind:
                faults.append(Fault("package", name, f"type {getattr(made, name).dtype}", _KINDS[kind]))
        if not faults and (not np.isfinite(made.costs).all() or not (made.distances >= 0).all()):
            faults.append(Fault("package", "", "negative distances or infinite costs", "numbers that can be used"))
        if faults:
            raise InputError(faults)
        return made


@frozen(kw_only=True, eq=False)
class Answer:
    """What the server sends back to one user: its matrix, in the package's order of rows.

    Attributes:
        z: (n, K) near-feasible probabilities; the user repairs and certifies them itself.
    """

    z: Floats

    def to_bytes(self) -> bytes:
        """The message as bytes."""
        return pack(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Answer:
        """Read.

        Raises:
            InputError: no answer.
        """
        made: Answer = unpack(cls, raw)
        if made.z.ndim != 2 or made.z.dtype.kind != "f":
            raise InputError([Fault("answer", "z", f"{made.z.dtype} of shape {made.z.shape}", "numbers (n, K)")])
        return made
