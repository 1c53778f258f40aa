"""The proof that no choice of photos does better: a tree of cases, stored beside the deletions (mathematics Q3).

The claim is always the same: no set of at least ``fewest`` kept photos leaves ``k`` locations at or above the true one.
A case says of some locations that they are protected or do not count, and of some photos that they stay or go. It is
closed by multipliers f >= 0 of its protected locations, for then at most (Lagrange)::

    sum over photos of max(0, 1 + sum_j f_j (S_ij - S_it - theta))

photos can stay, photos that must stay counted in any case; or because too few locations are left that may count. The
form of the file is in ``docs/reference/proof.md``.
"""

from __future__ import annotations

import itertools
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, InputError
from privopt.files.archive import read_npz
from privopt.files.release_folder import PROOF
from privopt_photo_censor import search
from privopt_photo_censor.engines import AlternateSearch, data_of
from privopt_photo_censor.lagrange import EPS, Tableau, dual_simplex, set_upper
from privopt_photo_censor.scores import Album, Task
from privopt_photo_censor.single import reach

__all__ = ["Tree", "claim", "prove", "proved_tree"]

VERSION: Final = 1
LEAF, PLACE, PHOTO = 0, 1, 2
EFFORT: Final = 20_000_000
"""Photos times locations of a set times cases, at most: exact evaluation of so many takes some ten seconds."""
STEPS: Final = 2.0 ** np.arange(-10, 60)
"""How far along a row multipliers are tried."""
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

    def write(self, folder: Path) -> None:
        """Write proof.npz."""
        arrays: dict[str, NDArray[Any]] = {
            "version": np.array([VERSION], dtype=np.int64),
            "kind": self.kind,
            "item": self.item,
            "starts": self.starts,
            "places": self.places,
            "values": self.values,
        }
        np.savez(folder / PROOF, **arrays)  # type: ignore[arg-type]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read proof.npz.

        Raises:
            InputError: it is missing or not of its form.
        """
        path, wanted = folder / PROOF, ", ".join(KINDS)
        parts = read_npz(path, wanted, only=KINDS)
        faults = [Fault(str(path), name, "no such array", wanted) for name in KINDS if name not in parts]
        faults += [
            Fault(str(path), name, f"{part.dtype.str[1:]} of shape {part.shape}", f"{KINDS[name]}, one side")
            for name, part in parts.items()
            if part.dtype.str[1:] != KINDS[name] or part.ndim != 1
        ]
        if not faults:
            starts, count = parts["starts"], len(parts["places"])
            fits = parts["version"].tolist() == [VERSION] and len(parts["kind"]) == len(parts["item"])
            fits = fits and len(starts) == int((parts["kind"] == LEAF).sum()) + 1 and starts[0] == 0
            fits = fits and starts[-1] == count == len(parts["values"]) and bool((np.diff(starts) >= 0).all())
            if not (fits and bool((np.isfinite(parts["values"]) & (parts["values"] >= 0)).all())):
                faults.append(Fault(str(path), "", "arrays that do not fit one another", f"version {VERSION}"))
        if faults:
            raise InputError(faults)
        return cls(**{name: parts[name] for name in KINDS if name != "version"})

    def fault(self, album: Album, k: int, fewest: int) -> str | None:
        """Why the tree does not prove that no ``fewest`` kept photos protect ``k`` locations; None where it does."""
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
    album: Album, inside: list[int], force: dict[int, float], kept: frozenset[int], gone: frozenset[int], fewest: int
) -> bool:
    """Whether fewer than ``fewest`` photos can stay in a case: in doubles where they can tell, else in rationals."""
    data, n = album.reduced, album.photos
    out: Bools = np.asarray(data.kills[inside].any(axis=0), dtype=np.bool_)
    out[list(gone)] = True
    must = np.zeros(n, dtype=np.bool_)
    must[list(kept)] = True
    if (must & out).any():
        return True
    rows = list(force)
    weight = 1.0 + np.array(list(force.values())) @ data.diff[rows] if rows else np.ones(n)
    total = float(weight[~out & (must | (weight > 0))].sum())
    size = 1.0 + sum(f * float(data.size[j]) for j, f in force.items())
    if total + 8.0 * EPS * (n + len(rows) + 8) * n * size < fewest:
        return True
    exact = Fraction(0)
    for i in np.flatnonzero(~out).tolist():
        gains = (
            Fraction(f) * (Fraction(data.scores[j, i]) - Fraction(data.true[i]) - Fraction(data.margin))
            for j, f in force.items()
        )
        one = 1 + sum(gains, Fraction(0))
        exact += one if one > 0 or must[i] else 0
    return exact < fewest


class _OutOfReachError(Exception):
    """More cases than a proof may have, or no time for them."""


class _Builder:
    """Cases as they are met, and the tableaus of the sets of locations on the way to them."""

    def __init__(self, album: Album, k: int, fewest: int, most: int, deadline: float | None) -> None:
        self.album, self.k, self.need, self.most, self.deadline = album, k, fewest, most, deadline
        self.data, self.n = data_of(album), album.photos
        self.stack = search.stack_of(self.n, len(self.data.diff), k, AlternateSearch.levels(self.n, k))
        self.cases: list[tuple[int, int]] = []
        self.starts, self.places, self.values = [0], list[int](), list[float]()
        goal = search.Goal(np.array([k, fewest, -1, -1, 0, 0, 0, 0]), np.zeros(self.n, dtype=np.bool_), False)
        search.start(self.data, goal, self.stack, reach(album.reduced))

    def case(self, kind: int, item: int) -> None:
        if len(self.cases) >= self.most or (self.deadline is not None and time.monotonic() > self.deadline):
            raise _OutOfReachError
        self.cases.append((kind, item))

    def close(self, rows: Ints, force: Floats) -> None:
        self.case(LEAF, -1)
        for j, f in zip(rows.tolist(), force.tolist(), strict=True):
            if f > 0.0:
                self.places.append(int(self.album.reduced.location[j]))
                self.values.append(f)
        self.starts.append(len(self.places))

    def sets(self, r: int, candidates: list[int]) -> None:
        """Close all sets that hold the r locations of level r and others of the candidates."""
        left = []
        for at, j in enumerate(candidates):
            search.copy(self.stack, r, r + 1, r)
            bound = search.join(self.data, self.stack, r + 1, r, j, self.need)
            ruled = bool((self.data.kills[j] & self.data.keep).any())  # then nothing was joined
            force = np.zeros(0) if ruled else self.multipliers(r + 1, r + 1) if bound < self.need else None
            if force is None:
                left.append((bound, j))
            else:
                self.case(PLACE, int(self.album.reduced.location[j]))
                self.close(search.level(self.stack, r + 1).rows[: len(force)], force)
            if r + len(left) + len(candidates) - at - 1 < self.k:
                break
        left.sort()
        while r + len(left) >= self.k:
            j = left.pop(0)[1]
            self.case(PLACE, int(self.album.reduced.location[j]))
            search.copy(self.stack, r, r + 1, r)
            search.join(self.data, self.stack, r + 1, r, j, self.need)
            if r + 1 == self.k:
                self.photos(r + 1, r + 1)
            else:
                self.sets(r + 1, [other for _, other in left])
        self.close(np.zeros(0, dtype=np.int64), np.zeros(0))

    def photos(self, v: int, r: int) -> None:
        """Close the full set of locations of level v by branching on photos."""
        force = self.multipliers(v, r)
        t = search.level(self.stack, v)
        if force is not None:
            self.close(t.rows[:r], force)
            return
        x, free = t.x[: self.n], t.low[: self.n] != t.high[: self.n]
        split = np.where(free, np.abs(x - np.rint(x)), -1.0)
        if split.max() <= 1e-6:
            split = np.where(free, -np.abs(t.cost[: self.n]), -np.inf)
        if not free.any() or v + 1 >= len(self.stack.tableau.T):
            raise _OutOfReachError
        i = int(split.argmax())
        self.case(PHOTO, i)
        for value in (1.0, 0.0):
            search.copy(self.stack, v, v + 1, r)
            below = search.level(self.stack, v + 1)
            set_upper(below, r, i, value)
            dual_simplex(below, self.data, r, self.need)
            self.photos(v + 1, r)

    def multipliers(self, v: int, r: int) -> Floats | None:
        """Multipliers of level v that leave fewer photos than wanted; None where none were found.

        Those of the tableau, or, of a set that no photos satisfy, those along one of its rows.
        """
        t: Tableau = search.level(self.stack, v)
        base = -t.cost[self.n : self.n + r]
        tried = np.maximum(0.0, base)[None, :]
        if self.values_of(t, r, tried)[0] < self.need:
            return np.asarray(tried[0])
        for row, sign in itertools.product(range(r), (1.0, -1.0)):
            tried = np.maximum(0.0, base + np.multiply.outer(STEPS, sign * t.T[row, self.n : self.n + r]))
            found = self.values_of(t, r, tried)
            if found.min() < self.need:
                return np.asarray(tried[int(found.argmin())])
        return None

    def values_of(self, t: Tableau, r: int, force: Floats) -> Floats:
        """More than the Lagrangians of these multipliers (F, r), whatever is rounded."""
        rows, may = t.rows[:r], t.high[: self.n] > 0.0
        weight = 1.0 + force @ self.data.diff[rows]
        must: Bools = t.low[: self.n] == 1.0
        size = 1.0 + force @ self.data.size[rows]
        total = np.where(may & (must | (weight > 0.0)), weight, 0.0).sum(axis=1)
        return np.asarray(total + 8.0 * EPS * (self.n + r + 8) * self.n * size)


def prove(album: Album, k: int, fewest: int, *, deadline: float | None = None) -> Tree | None:
    """A tree that proves that no ``fewest`` kept photos protect ``k`` locations; None where it would be too large.

    Args:
        album: scores and what must stay.
        k: locations at or above the true one.
        fewest: photos that stay.
        deadline: :func:`time.monotonic` value to stop at.
    """
    trivial = fewest > album.photos or k > album.locations - 1
    if not trivial and (album.hidden or fewest < 1):
        return None
    if trivial:
        none = np.zeros(0)
        return Tree(
            kind=none.astype(np.uint8), item=none.astype(np.int32), starts=np.zeros(1, dtype=np.int64),
            places=none.astype(np.int32), values=none,
        )  # fmt: skip
    levels = AlternateSearch.levels(album.photos, k)
    if levels < k + 2:
        return None
    builder = _Builder(album, k, fewest, EFFORT // (album.photos * k), deadline)
    single = reach(album.reduced)
    try:
        builder.sets(0, np.argsort(single, kind="stable").tolist())
    except _OutOfReachError:
        return None
    kinds, items = zip(*builder.cases, strict=True)
    tree = Tree(
        kind=np.array(kinds, dtype=np.uint8),
        item=np.array(items, dtype=np.int32),
        starts=np.array(builder.starts, dtype=np.int64),
        places=np.array(builder.places, dtype=np.int32),
        values=np.array(builder.values),
    )
    return tree if tree.fault(album, k, fewest) is None else None


def claim(album: Album, task: Task, bound: int) -> tuple[int, int]:
    """What a bound on the objective says: (k, fewest), that no so many kept photos protect k locations.

    Args:
        album: scores and what must stay.
        task: top-k or deletion budget.
        bound: fewest deletions, or under a budget the most protected locations.
    """
    if task.top_k is not None:
        return task.top_k, album.photos - bound + 1
    return bound + 1, max(album.least, album.photos - (task.budget or 0))


def proved_tree(album: Album, task: Task, bound: int, *, deadline: float | None = None) -> tuple[int, Tree] | None:
    """The bound with its tree; or a weaker one, from each location alone, where that would be too large; else None."""
    k, fewest = claim(album, task, bound)
    tree = prove(album, k, fewest, deadline=deadline)
    if tree is not None or album.hidden:
        return None if tree is None else (bound, tree)
    single = reach(album.reduced)
    weaker = album.photos - int(np.sort(single)[-k]) if task.top_k is not None else int((single >= fewest).sum())
    tree = prove(album, *claim(album, task, weaker), deadline=deadline)
    return None if tree is None else (weaker, tree)
