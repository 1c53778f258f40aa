"""The proof that no choice of photos does better: a tree of cases, stored with the deletions (mathematics Q3).

The claim is always the same: no set of at least ``fewest`` kept photos leaves ``k`` locations at or above the true one.
A case says of some locations that they are protected or do not count, and of some photos that they stay or go. It is
closed by multipliers f >= 0 of its protected locations, for then at most (Lagrange)::

    sum over photos of max(0, 1 + sum_j f_j (S_ij - S_it - theta))

photos can stay, photos that must stay counted in any case; or because too few locations are left that may count. The
form of the file is in ``docs/reference/proof.md``.
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
from privopt_photo_censor.solver.bounds import Certificate, Photos, lagrangian

__all__ = ["LEAF", "PHOTO", "PLACE", "Tree", "claim"]

PROOF_VERSION: Final = 1
LEAF, PLACE, PHOTO = 0, 1, 2
KINDS: Final = {"version": "i8", "kind": "u1", "item": "i4", "starts": "i8", "places": "i4", "values": "f8"}


@frozen(kw_only=True, eq=False)
class Tree:
    """Cases in the order in which a search meets them: of a place protected before not counted, of a photo kept first.

    Attributes:
        kind: (C,) uint8: 0 closed, 1 branches on a location, 2 branches on a photo.
        item: (C,) int32, the location's column or the photo's row; -1 where closed.
        starts: (L + 1,) int64; the l-th closed case owns ``starts[l]:starts[l + 1]`` of the following.
        places: (Q,) int32, columns of protected locations.
        values: (Q,) their multipliers, at least 0.
    """

    kind: NDArray[np.uint8]
    item: NDArray[np.int32]
    starts: Ints
    places: NDArray[np.int32]
    values: Floats

    @classmethod
    def of(cls, cases: Sequence[tuple[int, int]], leaves: Sequence[Certificate], location: Ints) -> Self:
        """Put a tree together.

        Args:
            cases: kind and item of each.
            leaves: multipliers of the closed ones, of rows of the reduced album.
            location: (m,) their columns.
        """
        some = [by.force > 0.0 for by in leaves]
        lengths = [int(used.sum()) for used in some]
        places = [location[by.rows[used]] for by, used in zip(leaves, some, strict=True)]
        values = [by.force[used] for by, used in zip(leaves, some, strict=True)]
        return cls(
            kind=np.array([kind for kind, _ in cases], dtype=np.uint8),
            item=np.array([item for _, item in cases], dtype=np.int32),
            starts=np.cumsum([0, *lengths], dtype=np.int64),
            places=np.concatenate([np.zeros(0, dtype=np.int64), *places]).astype(np.int32),
            values=np.concatenate([np.zeros(0), *values]),
        )

    def write(self, folder: Path) -> None:
        """Write proof.npz."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in KINDS if name != "version"}
        np.savez(folder / PROOF, version=np.array([PROOF_VERSION], dtype=np.int64), **arrays)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read proof.npz.

        Raises:
            InputError: it is missing or not of its form.
        """
        path = folder / PROOF
        parts = read_arrays(path, {name: (dtype, (None,)) for name, dtype in KINDS.items()})
        starts, count = parts["starts"], len(parts["places"])
        fits = parts["version"].tolist() == [PROOF_VERSION] and len(parts["kind"]) == len(parts["item"])
        fits = fits and len(starts) == int((parts["kind"] == LEAF).sum()) + 1 and starts[0] == 0
        fits = fits and starts[-1] == count == len(parts["values"]) and bool((np.diff(starts) >= 0).all())
        if not (fits and bool((np.isfinite(parts["values"]) & (parts["values"] >= 0)).all())):
            raise InputError([Fault(str(path), "", "arrays that do not fit one another", f"version {PROOF_VERSION}")])
        return cls(**{name: parts[name] for name in KINDS if name != "version"})

    def fault(self, album: Album, k: int, fewest: int) -> str | None:
        """Say why the tree does not prove that no ``fewest`` kept photos protect ``k`` locations; None if it does."""
        if fewest > album.photos or k > album.locations - 1:
            return None
        if album.hidden or fewest < 1:
            return "a choice of few deletions protects every location"
        data = album.reduced
        row = {int(column): j for j, column in enumerate(data.location)}
        keep = frozenset(np.flatnonzero(album.keep).tolist())
        cases = [(frozenset[int](), frozenset(row), keep, frozenset[int]())]
        leaf = 0
        for kind, item in zip(self.kind.tolist(), self.item.tolist(), strict=True):
            if not cases:
                return "more cases than the tree has"
            inside, left, kept, gone = cases.pop()
            if kind == PLACE and item in row:
                cases += [(inside, left - {item}, kept, gone), (inside | {item}, left - {item}, kept, gone)]
            elif kind == PHOTO and 0 <= item < album.photos:
                cases += [(inside, left, kept, gone | {item}), (inside, left, kept | {item}, gone)]
            elif kind == LEAF:
                own = slice(self.starts[leaf], self.starts[leaf + 1])
                pairs = zip(self.places[own].tolist(), self.values[own].tolist(), strict=True)
                force = {row[place]: f for place, f in pairs if place in inside}
                leaf += 1
                few = len(inside) + len(left) < k
                if not few and not _closed(album, [row[j] for j in inside], force, kept, gone, fewest):
                    return f"case {leaf - 1} lets {fewest} photos stay"
            else:
                return f"a case of kind {kind} on {item}"
        return "cases that are left open" if cases else None


def _closed(
    album: Album,
    inside: list[int],
    force: dict[int, float],
    retained: frozenset[int],
    gone: frozenset[int],
    fewest: int,
) -> bool:
    """Check whether fewer than ``fewest`` photos can stay in a case: in doubles if they decide, else in rationals."""
    data, n = album.reduced, album.photos
    out: Bools = np.asarray(data.kills[inside].any(axis=0), dtype=np.bool_)
    out[list(gone)] = True
    must = np.zeros(n, dtype=np.bool_)
    must[list(retained)] = True
    if (must & out).any():
        return True
    rows, values = np.array(list(force), dtype=np.int64), np.array(list(force.values()), dtype=np.float64)
    if lagrangian(data, rows, values, Photos(must, ~out)) < fewest:
        return True
    exact = Fraction(0)
    for i in np.flatnonzero(~out).tolist():
        one = 1 + sum((Fraction(f) * data.gain(j, i) for j, f in force.items()), Fraction(0))
        exact += one if one > 0 or must[i] else 0
    return exact < fewest


def claim(album: Album, task: Task, bound: int) -> tuple[int, int]:
    """Return the claim of a bound: (k, fewest), no larger kept set leaves k locations at or above the true one.

    Args:
        album: scores and what must stay.
        task: top-k or deletion budget.
        bound: the most photos that can stay, or under a budget the most locations that can be protected.
    """
    if task.top_k is not None:
        return task.top_k, bound + 1
    return bound + 1, max(album.required, album.photos - (task.budget or 0))
