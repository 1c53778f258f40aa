"""A proof by cases that no choice of photos does better (proof.md: Cases of a photo folder)."""

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
"""Kinds of cases that branch: at a place, at a photo. The others are closed."""

ONE = 1 << (BITS + 1074)
"""The real 1 where a multiplier in 2**-256ths meets a difference in 2**-1074ths."""


@dataclass(frozen=True)
class Choice:
    """What may be chosen.

    Attributes:
        photos: their numbers.
        keep: those that must stay.
        gain: for each place and photo, by how much the photo speaks for it rather than the true
            one; None: it rules the place out.
        blind: photos that rule the true place out.
    """

    photos: set[int]
    keep: set[int]
    gain: Mapping[int, Sequence[int | None]]
    blind: set[int]


@dataclass(frozen=True)
class _Case:
    """Places that are protected, or may still count; photos that stay, or go."""

    protected: frozenset[int]
    open: frozenset[int]
    kept: frozenset[int]
    gone: frozenset[int]


def check_cases(path: Path, choice: Choice, *, places: int, fewest: int) -> None:
    """Prove that no choice keeps ``fewest`` photos and protects ``places``: all cases end.

    Raises:
        RefusedError: a case is open, or omitted.
    """
    version, kinds, items, starts, where, values = (array.flat for array in read_npz(path, ARRAYS))
    if fewest > len(choice.photos) or places > len(choice.gain):
        return
    alone = fewest > 0 and not choice.blind & choice.photos
    need(alone, "objective.lower_bound: few deletions protects all places")
    one_each = len(kinds) == len(items) and len(where) == len(values)
    need(one_each, "proof.npz: item, values: expected as many as of kind and places", 2)
    known = {PLACE: choice.gain.keys(), PHOTO: choice.photos}
    there = all(item in known.get(kind, [item]) for kind, item in zip(kinds, items, strict=True))
    need(there, "proof.npz: item: expected places and photos, got other numbers", 2)
    pairs = [(j, int(math.ldexp(f, BITS))) for j, f in zip(where, values, strict=True)]
    nothing = frozenset[int]()
    cases = [_Case(nothing, frozenset(choice.gain), frozenset(choice.keep), nothing)]
    closed = 0
    for kind, item in zip(kinds, items, strict=True):
        case = cases.pop()
        if kind == PLACE:
            left = case.open - {item}
            cases.append(replace(case, open=left))
            cases.append(replace(case, open=left, protected=case.protected | {item}))
        elif kind == PHOTO:
            cases.append(replace(case, gone=case.gone | {item}))
            cases.append(replace(case, kept=case.kept | {item}))
        else:
            multipliers = pairs[starts[closed] : starts[closed + 1]]
            ends = _ends(case, choice, multipliers, places=places, fewest=fewest)
            need(ends, f"proof.npz: case {closed} is open")
            closed += 1
    form = [*version, len(starts), len(pairs)] == [1, closed + 1, starts[-1]]
    need(not cases and form, "proof.npz: cases left open")


def _ends(
    case: _Case,
    choice: Choice,
    multipliers: list[tuple[int, int]],
    *,
    places: int,
    fewest: int,
) -> bool:
    """Check that nothing of this case keeps ``fewest`` photos and protects ``places`` places.

    Too few places are left, or a photo that stays would have to go. Or by Lagrange, with
    multipliers f >= 0, at most sum over photos of max(0, 1 + sum over protected j of f_j gain_ij)
    can stay; photos that must stay count without the max.
    """
    ruled_out = {i for i in choice.photos for j in case.protected if choice.gain[j][i] is None}
    out = case.gone | ruled_out
    if len(case.protected) + len(case.open) < places or case.kept & out:
        return True
    own = [(choice.gain[j], max(0, f)) for j, f in multipliers if j in case.protected]
    most = 0
    for i in choice.photos - out:
        worth = ONE + sum(f * (gain[i] or 0) for gain, f in own)
        if worth > 0 or i in case.kept:
            most += worth
    return most // ONE < fewest
