"""Check a proof by cases that no choice of photos is better than a stated bound.

The format is described in docs/reference/proof.md, "Cases of a photo folder".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from privopt.checker.arrays import read_npz
from privopt.checker.exact import BITS, need

__all__ = ["Choice", "check_cases"]

ARRAYS = "version:i8:1 kind:u1:1 item:i4:1 starts:i8:1 places:i4:1 values:f8:1"
"""The name, type and number of dimensions of each array in proof.npz."""

PLACE, PHOTO = 1, 2
"""The codes for cases that branch on a place and for cases that branch on a photo. A case with any other code is a
leaf."""

ONE = 1 << (BITS + 1074)
"""The number 1 in units of 2**-(256 + 1074), the unit of the product of a multiplier and a gain."""


@dataclass(frozen=True)
class Choice:
    """The photos to choose from, with their scores expressed as gains.

    Attributes:
        photos: The indices of all photos.
        keep: The indices of the photos that must be kept.
        gain: The gains of all photos, as one list for each place other than the true one. A photo's gain for a place is
            its score for this place, minus its score for the true place, minus the margin. It is an integer in units of
            2**-1074, or None if either score is -inf.
        blind: The indices of the photos whose score for the true place is -inf.
    """

    photos: set[int]
    keep: set[int]
    gain: Mapping[int, Sequence[int | None]]
    blind: set[int]


@dataclass(frozen=True)
class _Case:
    """A case in a proof by cases, which makes assumptions about some places and photos.

    Places and photos are identified by index.

    Attributes:
        protected: The places that must be protected.
        open: The places that are still undecided and may be protected as well.
        retained: The photos that must be kept.
        gone: The photos that are deleted. Photos in neither ``retained`` nor ``gone`` are undecided.
    """

    protected: frozenset[int]
    open: frozenset[int]
    retained: frozenset[int]
    gone: frozenset[int]


def check_cases(path: Path, choice: Choice, *, places: int, fewest: int) -> None:
    """Check a proof that no choice of photos keeps at least ``fewest`` of them and protects at least ``places`` places.

    The file contains a binary tree of cases in preorder. For each leaf of the tree, :func:`_is_closed` verifies that
    the leaf's case contains no such choice, usually by means of the multipliers stored for the leaf.

    Args:
        path: The path of proof.npz.
        choice: The photos and their scores.
        places: The minimum number of protected places in the claim.
        fewest: The minimum number of kept photos in the claim.

    Raises:
        RefusedError: The proof is malformed or leaves a case open, or the claim is obviously false.
    """
    version, kinds, items, starts, where, values = (array.flat for array in read_npz(path, ARRAYS))
    # Without that many photos or places, no such choice exists, and the claim needs no proof.
    if fewest > len(choice.photos) or places > len(choice.gain):
        return
    may_be_optimal = fewest > 0 and not choice.blind & choice.photos
    # If no photo need be kept, or if a photo rules the true place out, a choice that protects all places exists.
    need(may_be_optimal, "objective.lower_bound: a choice with few deletions protects all places")
    has_equal_lengths = len(kinds) == len(items) and len(where) == len(values)
    need(has_equal_lengths, "proof.npz: item, values: expected as many as of kind and places", 2)
    numbers_by_kind = {PLACE: choice.gain.keys(), PHOTO: choice.photos}
    has_known_items = all(item in numbers_by_kind.get(kind, [item]) for kind, item in zip(kinds, items, strict=True))
    need(has_known_items, "proof.npz: item: expected places and photos, got other numbers", 2)
    # Pairs of a place and its multiplier, which is truncated to a multiple of 2**-256. This is harmless, because any
    # multipliers >= 0 give a valid bound.
    pairs = [(j, int(math.ldexp(f, BITS))) for j, f in zip(where, values, strict=True)]
    empty = frozenset[int]()
    # In the root case, every place is undecided, and all photos except those in `keep` are too.
    cases = [_Case(empty, frozenset(choice.gain), frozenset(choice.keep), empty)]
    closed = 0
    for kind, item in zip(kinds, items, strict=True):
        case = cases.pop()
        if kind == PLACE:
            undecided = case.open - {item}
            # The cases form a stack. The one pushed last comes next in the file.
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
    """Return whether a case provably contains no choice of photos that would refute the claim.

    A choice would refute the claim by keeping at least ``fewest`` photos and protecting at least ``places`` places.
    This is impossible if too few places can be protected, or if a photo that must be kept is deleted or rules out a
    place that must be protected. Otherwise, the multipliers may prove that too few photos can be kept.

    Let f_j >= 0 be the multiplier of place j, which must be protected, and let gain_ij be the gain of photo i for place
    j (see :class:`Choice`). By Lagrangian duality, at most ``sum_i max(0, 1 + sum_j f_j gain_ij)`` photos can be kept.
    For photos that must be kept, the maximum with 0 is omitted.

    Args:
        case: The case to examine.
        choice: The photos and their scores.
        multipliers: Pairs of a place j and its multiplier f_j in units of 2**-256.
        places, fewest: The claim, as in :func:`check_cases`.
    """
    ruled_out = {i for i in choice.photos for j in case.protected if choice.gain[j][i] is None}
    removed = case.gone | ruled_out
    if len(case.protected) + len(case.open) < places or case.retained & removed:
        return True
    # Negative multipliers become 0 and those of unprotected places are dropped, because they would make the bound
    # invalid. No gain is None below, because photos that rule out a protected place are among `removed`.
    terms = [(choice.gain[j], max(0, f)) for j, f in multipliers if j in case.protected]
    total = 0
    for i in choice.photos - removed:
        # 1 plus the sum of the multipliers times the gains, in units of 2**-(256 + 1074).
        worth = ONE + sum(f * (gain[i] or 0) for gain, f in terms)
        if worth > 0 or i in case.retained:
            total += worth
    # Photos are counted in whole numbers, so the bound is rounded down.
    return total // ONE < fewest
