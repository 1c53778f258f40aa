"""Proofs that no set of photos is better than the released one, as trees of cases that are stored with the release.

A location is protected if the retained photos make it rank at or above the true one. A tree proves that no set of at
least ``fewest`` retained photos protects ``k`` locations. Each case fixes some locations as protected or as not
counted, and some photos as retained or deleted. A case is closed if fewer than ``k`` locations may still be protected,
or if multipliers prove that fewer than ``fewest`` photos can stay. There is a multiplier f_j >= 0 for each location j
that must be protected. By Lagrangian duality, at most ::

    sum over photos i of max(0, 1 + sum over protected locations j of f_j (S_ij - S_it - theta))

photos can stay. Here S_ij is photo i's score for location j, t is the true location, and theta is the margin. The
maximum with 0 is omitted for photos that must stay. docs/reference/proof.md describes the file format.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, InputError
from privopt.files.archive import read_arrays
from privopt.files.release_folder import PROOF
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.solver.bounds import Certificate, Photos, bound_photos

__all__ = ["LEAF", "PHOTO", "PLACE", "Tree", "make_claim"]

PROOF_VERSION: Final = 1
LEAF, PLACE, PHOTO = 0, 1, 2
"""The codes for kinds of cases: closed, branched on a location, and branched on a photo."""
KINDS: Final = {"version": "i8", "kind": "u1", "item": "i4", "starts": "i8", "places": "i4", "values": "f8"}
"""The type of each array in proof.npz."""


@frozen(kw_only=True, eq=False)
class Tree:
    """A proof in the form of a binary tree of C cases, with multipliers for each of its L leaves (the closed cases).

    The cases are stored in preorder. The child in which a location is protected, or a photo retained, comes before its
    sibling.

    Attributes:
        kind: (C,) The kind of each case: 0 for a closed case, 1 for a branch on a location, 2 for a branch on a photo.
        item: (C,) The column of the location or the row of the photo on which a case branches, or -1 for a closed case.
        starts: (L + 1,) The offsets of the closed cases' multipliers. The multipliers of the l-th closed case, counted
            from 0, are at ``starts[l]:starts[l + 1]`` in ``places`` and ``values``.
        places: (Q,) The columns of the locations with multipliers.
        values: (Q,) The multipliers, which are non-negative.
    """

    kind: NDArray[np.uint8]
    item: NDArray[np.int32]
    starts: Ints
    places: NDArray[np.int32]
    values: Floats

    @classmethod
    def of(cls, cases: Sequence[tuple[int, int]], leaves: Sequence[Certificate], location: Ints) -> Self:
        """Build a tree from the cases recorded by a search.

        Args:
            cases: The kind and item of each case, in preorder.
            leaves: The multipliers for each closed case, with locations as rows of :class:`Alternates`.
            location: (m,) The column of the location in each of these rows.
        """
        # A multiplier of 0 does not contribute to a bound, so it is not stored.
        masks = [by.force > 0.0 for by in leaves]
        lengths = [int(mask.sum()) for mask in masks]
        places = [location[by.rows[mask]] for by, mask in zip(leaves, masks, strict=True)]
        values = [by.force[mask] for by, mask in zip(leaves, masks, strict=True)]
        return cls(
            kind=np.array([kind for kind, _ in cases], dtype=np.uint8),
            item=np.array([item for _, item in cases], dtype=np.int32),
            starts=np.cumsum([0, *lengths], dtype=np.int64),
            places=np.concatenate([np.zeros(0, dtype=np.int64), *places]).astype(np.int32),
            values=np.concatenate([np.zeros(0), *values]),
        )

    def write(self, folder: Path) -> None:
        """Write the tree to proof.npz in a folder."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in KINDS if name != "version"}
        np.savez(folder / PROOF, version=np.array([PROOF_VERSION], dtype=np.int64), **arrays)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a tree from proof.npz in a folder.

        Raises:
            InputError: The file is missing or malformed, or its arrays are inconsistent.
        """
        path = folder / PROOF
        parts = read_arrays(path, {name: (dtype, (None,)) for name, dtype in KINDS.items()})
        starts, count = parts["starts"], len(parts["places"])
        # The file may have been tampered with, so the lengths and offsets are all checked.
        is_consistent = parts["version"].tolist() == [PROOF_VERSION] and len(parts["kind"]) == len(parts["item"])
        is_consistent = is_consistent and len(starts) == int((parts["kind"] == LEAF).sum()) + 1 and starts[0] == 0
        is_consistent = (
            is_consistent and starts[-1] == count == len(parts["values"]) and bool((np.diff(starts) >= 0).all())
        )
        if not (is_consistent and bool((np.isfinite(parts["values"]) & (parts["values"] >= 0)).all())):
            raise InputError([Fault(str(path), "", "arrays that do not fit one another", f"version {PROOF_VERSION}")])
        return cls(**{name: parts[name] for name in KINDS if name != "version"})

    def fault(self, album: Album, k: int, fewest: int) -> str | None:
        """Return the reason why the tree does not prove a claim, or None if the claim is proved.

        The claim is that no set of at least ``fewest`` retained photos protects at least ``k`` locations.

        Args:
            album: The scores, and the photos that must be kept.
            k: The minimum number of protected locations in the claim.
            fewest: The minimum number of retained photos in the claim.
        """
        # There are no such sets of photos, so the claim is true whatever the tree.
        if fewest > album.photos or k > album.locations - 1:
            return None
        # No photo at all, or one that gives the true location probability 0, protects every location.
        if album.rules_out_true or fewest < 1:
            return "a choice of few deletions protects every location"
        data = album.alternates
        # A case consists of the protected and undecided locations, given by their columns, and the retained and deleted
        # photos. The tree is in preorder, and `cases` is a stack, so the child that comes first is appended last.
        rows_by_column = {int(column): j for j, column in enumerate(data.location)}
        keep = frozenset(np.flatnonzero(album.keep).tolist())
        cases = [(frozenset[int](), frozenset(rows_by_column), keep, frozenset[int]())]
        leaf = 0
        for kind, item in zip(self.kind.tolist(), self.item.tolist(), strict=True):
            if not cases:
                return "more cases than the tree has"
            protected, undecided, retained, deleted = cases.pop()
            if kind == PLACE and item in rows_by_column:
                cases += [
                    (protected, undecided - {item}, retained, deleted),
                    (protected | {item}, undecided - {item}, retained, deleted),
                ]
            elif kind == PHOTO and 0 <= item < album.photos:
                cases += [
                    (protected, undecided, retained, deleted | {item}),
                    (protected, undecided, retained | {item}, deleted),
                ]
            elif kind == LEAF:
                span = slice(self.starts[leaf], self.starts[leaf + 1])
                pairs = zip(self.places[span].tolist(), self.values[span].tolist(), strict=True)
                # Multipliers of locations that are not protected in this case are dropped, as they would make the bound
                # invalid.
                force = {rows_by_column[location]: f for location, f in pairs if location in protected}
                leaf += 1
                # The case is closed if too few locations may be protected, or if too few photos can stay.
                has_too_few = len(protected) + len(undecided) < k
                if not has_too_few and not _is_closed(
                    album, [rows_by_column[j] for j in protected], force, retained, deleted, fewest
                ):
                    return f"case {leaf - 1} lets {fewest} photos stay"
            else:
                return f"a case of kind {kind} on {item}"
        return "cases that are left open" if cases else None


def _is_closed(
    album: Album,
    protected: list[int],
    force: dict[int, float],
    retained: frozenset[int],
    deleted: frozenset[int],
    fewest: int,
) -> bool:
    """Return whether multipliers prove that fewer than ``fewest`` photos can be kept in a case.

    The bound is first computed in floating point, with an allowance for rounding errors. If that does not suffice, it
    is computed in exact rational arithmetic.

    Args:
        album: The scores, and the photos that must be kept.
        protected: The locations that must be protected in the case, as rows of :class:`Alternates`.
        force: The multipliers of some of these locations, by row.
        retained, deleted: The photos that are fixed as retained or deleted in the case.
        fewest: The minimum number of retained photos in the claim.
    """
    data, n = album.alternates, album.photos
    is_out: Bools = np.asarray(data.kills[protected].any(axis=0), dtype=np.bool_)
    is_out[list(deleted)] = True
    must_stay = np.zeros(n, dtype=np.bool_)
    must_stay[list(retained)] = True
    # If a photo that must stay rules out a protected location, no set of photos belongs to the case.
    if (must_stay & is_out).any():
        return True
    rows, values = np.array(list(force), dtype=np.int64), np.array(list(force.values()), dtype=np.float64)
    if bound_photos(data, rows, values, Photos(must_stay, ~is_out)) < fewest:
        return True
    # This is the Lagrangian sum from the module docstring, in rationals.
    exact_bound = Fraction(0)
    for i in np.flatnonzero(~is_out).tolist():
        weight = 1 + sum((Fraction(f) * data.gain(j, i) for j, f in force.items()), Fraction(0))
        exact_bound += weight if weight > 0 or must_stay[i] else 0
    return exact_bound < fewest


def make_claim(album: Album, task: Task, bound: int) -> tuple[int, int]:
    """Return the claim (k, fewest) that implies a bound: no set of at least ``fewest`` photos protects k locations.

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
        bound: The upper bound on the number of photos that can be kept or, under a budget, of locations that can be
            protected.
    """
    if task.top_k is not None:
        return task.top_k, bound + 1
    return bound + 1, max(album.required_count, album.photos - (task.budget or 0))
