"""Check a proof by cases that no choice of photos is better (proof.md: Cases of a photo folder)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from privopt.checker.arrays import read_npz
from privopt.checker.exact import BITS, need

__all__ = ["Choice", "check_cases"]

ARRAYS = "version:i8:1 kind:u1:1 item:i4:1 starts:i8:1 places:i4:1 values:f8:1"

PLACE, PHOTO = 1, 2
"""Kinds of cases that branch, on a place or on a photo. All other cases are closed."""

ONE = 1 << (BITS + 1074)
"""The number 1 in the unit of a product: multipliers are in 2**-256, differences in 2**-1074."""


@dataclass(frozen=True)
class Choice:
    """The photos that may be chosen.

    Attributes:
        photos: Numbers of all photos.
        keep: Numbers of those that must stay.
        gain: For each place and photo the score of the place minus that of the true one and the
            margin. None if the photo rules the place out.
        blind: Photos that rule the true place out.
    """

    photos: set[int]
    keep: set[int]
    gain: Mapping[int, Sequence[int | None]]
    blind: set[int]


@dataclass(frozen=True)
class _Case:
    """A case: places that are protected or may still count, and photos that stay or go."""

    protected: frozenset[int]
    open: frozenset[int]
    retained: frozenset[int]
    gone: frozenset[int]


def check_cases(path: Path, choice: Choice, *, places: int, fewest: int) -> None:
    """Check that all cases are closed: no choice keeps ``fewest`` photos and protects ``places``.

    Raises:
        RefusedError: A case is open or missing.
    """
    version, kinds, items, starts, where, values = (array.flat for array in read_npz(path, ARRAYS))
    if fewest > len(choice.photos) or places > len(choice.gain):
        return
    may_be_optimal = fewest > 0 and not choice.blind & choice.photos
    need(may_be_optimal, "objective.lower_bound: few deletions protects all places")
    has_equal_lengths = len(kinds) == len(items) and len(where) == len(values)
    need(has_equal_lengths, "proof.npz: item, values: expected as many as of kind and places", 2)
    numbers_by_kind = {PLACE: choice.gain.keys(), PHOTO: choice.photos}
    has_known_items = all(item in numbers_by_kind.get(kind, [item]) for kind, item in zip(kinds, items, strict=True))
    need(has_known_items, "proof.npz: item: expected places and photos, got other numbers", 2)
    pairs = [(j, int(math.ldexp(f, BITS))) for j, f in zip(where, values, strict=True)]
    empty = frozenset[int]()
    cases = [_Case(empty, frozenset(choice.gain), frozenset(choice.keep), empty)]
    closed = 0
    for kind, item in zip(kinds, items, strict=True):
        case = cases.pop()
        if kind == PLACE:
            undecided = case.open - {item}
            cases.append(replace(case, open=undecided))
            cases.append(replace(case, open=undecided, protected=case.protected | {item}))
        elif kind == PHOTO:
            cases.append(replace(case, gone=case.gone | {item}))
            cases.append(replace(case, retained=case.retained | {item}))
        else:
            multipliers = pairs[starts[closed] : starts[closed + 1]]
            is_closed = _is_closed(case, choice, multipliers, places=places, fewest=fewest)
            need(is_closed, f"proof.npz: case {closed} is open")
            closed += 1
    has_form = [*version, len(starts), len(pairs)] == [1, closed + 1, starts[-1]]
    need(not cases and has_form, "proof.npz: cases left open")


def _is_closed(
    case: _Case,
    choice: Choice,
    multipliers: list[tuple[int, int]],
    *,
    places: int,
    fewest: int,
) -> bool:
    """Check that no choice of this case keeps ``fewest`` photos and protects ``places`` places.

    Either too few places may count, or a photo that stays would have to go. Or by Lagrangian
    duality, with multipliers f >= 0, at most the sum over photos of max(0, 1 + sum over protected j
    of f_j gain_ij) can stay, where photos that must stay count without the max.
    """
    ruled_out = {i for i in choice.photos for j in case.protected if choice.gain[j][i] is None}
    removed = case.gone | ruled_out
    if len(case.protected) + len(case.open) < places or case.retained & removed:
        return True
    terms = [(choice.gain[j], max(0, f)) for j, f in multipliers if j in case.protected]
    total = 0
    for i in choice.photos - removed:
        worth = ONE + sum(f * (gain[i] or 0) for gain, f in terms)
        if worth > 0 or i in case.retained:
            total += worth
    return total // ONE < fewest
