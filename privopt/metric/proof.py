"""The proof of a lower bound: multipliers of privacy rows, stored beside the release, from which anybody evaluates it.

For every mechanism that keeps ``z_ik <= F_ij z_jk``, and any f >= 0 of these rows (Lagrange; mathematics of
:mod:`privopt.exact.bound`)::

    sum_i min_k (p_i c_ik + sum over rows (i, j) of f_k - sum over rows (j, i) of F_ji f_k)  <=  its loss

Rows may be any that a private mechanism keeps: those of required pairs, and of pairs that these imply, at the shortest
path over them. Multipliers may be left out and rounded at will before they are stored, since the bound is evaluated
from what is stored: ``docs/reference/proof.md`` has the form of the file.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, Singles
from privopt.errors import CertificationError, Fault, InputError, ModelError
from privopt.exact.bound import Kept, Multipliers, sum_down
from privopt.exact.bounds import exp_bounds, float_down
from privopt.exact.graph import edge_matrix
from privopt.files.archive import read_npz

if TYPE_CHECKING:
    from privopt.dsl import Solution
    from privopt.metric.data import MetricData

__all__ = ["PROOF", "Proof", "multipliers_of", "prove", "rounded"]

PROOF: Final = "proof.npz"
VERSION: Final = 2
SPARE: Final = 0.1
"""Share of the gap asked for (of 1e-5, where more is asked) by which a bound may fall for a smaller proof."""
LOOSE: Final = 0.03
"""Share of the gap that is left by which it may, where that is more than was asked for and the proof is long."""
LONG: Final = 1_000_000
"""Multipliers of a long proof: a file of 10 MB."""
BYTES: Final = 48
"""That a multiplier takes while a proof is made: as it is found, joined, rounded."""
OFF: Final = 2.0**-46
"""Relative error of weights p_i c_ik: shares, and products of shares and costs (a sum of many shares, pairwise)."""
LARGEST: Final = 8
"""Times the size of a file that its arrays may have: values are not deflated, and all others are hardly more."""
FINEST: Final = 2.0**-48
"""Share of a bound that its unit is at least."""
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "version": ("i8",),
    "unit": ("f8",),
    "pairs": ("i8",),
    "starts": ("i8",),
    "rows": ("u4",),
    "values": ("f4", "f8"),
}


@frozen(kw_only=True, eq=False)
class Proof:
    """Multipliers as they are stored, output by output.

    Attributes:
        pairs: (P, 2) int64 rows (i, j) of records, by row: ``z_ik <= exp(eps d_ij) z_jk``.
        starts: (K + 1,) int64; output k owns ``starts[k]:starts[k + 1]`` of the following.
        rows: (M,) uint32 places in ``pairs``, rising inside an output.
        values: (M,) float32 or float64, finite and above 0.
        unit: to odd multiples of half of it a bound is rounded down before it is stated (:func:`rounded`).
    """

    pairs: Ints
    starts: Ints
    rows: NDArray[np.uint32]
    values: Floats | Singles
    unit: float = 2.0**-60

    @classmethod
    def of(
        cls,
        multipliers: Multipliers,
        data: MetricData,
        weighted: Floats,
        *,
        over: NDArray[np.bool_] | None = None,
        spare: float = 0.0,
        most: float = math.inf,
    ) -> Self:
        """What of a solver's multipliers is worth storing.

        Args:
            multipliers: any.
            data: the problem's.
            weighted: (N, K) costs, prior included.
            over: (P,) the required pairs that the multipliers belong to; all where None.
            spare: what the bound may lose to a smaller file: once by leaving the least multipliers out, once by
                rounding the others to single precision.
            most: multipliers that there is room for.

        Raises:
            MemoryError: there are more.
        """
        chosen = slice(None) if over is None else over
        pairs, distances = data.pairs[chosen], data.metric.no_less(data.distances[chosen])
        growth = np.where(data.surely_required[chosen], exp_bounds(distances, data.epsilon)[1], np.inf)
        share = np.full(len(weighted), spare / len(weighted))
        kept, bound = Kept.of(multipliers, pairs, growth, weighted.shape, share, most=most).tame(weighted)
        if not bound > sum_down(weighted.min(axis=1)):  # every record at its cheapest output needs no multipliers
            kept, bound = kept.only(np.zeros(len(kept.rows), dtype=np.bool_)), -math.inf
        with np.errstate(over="ignore", under="ignore"):
            rounded = kept.values.astype(np.float32)
        single = Kept(pairs=kept.pairs, growth=kept.growth, starts=kept.starts, rows=kept.rows, values=rounded)
        single = single.only(np.isfinite(rounded) & (rounded > 0))
        best = single if single.bound(weighted) >= bound - spare else kept.only(np.ones(len(kept.rows), dtype=np.bool_))
        return cls(pairs=best.pairs, starts=best.starts, rows=best.rows, values=best.values)

    def bound(self, data: MetricData, weighted: Floats) -> float:
        """What the multipliers prove of the loss of every mechanism that keeps the exact distances.

        Args:
            data: the problem's.
            weighted: (N, K) costs, prior included.

        Returns:
            A number that no such loss is below; minus infinity where a sum is no double.

        Raises:
            CertificationError: a row of a pair that is neither required nor implied.
        """
        return self.enclosed(data, weighted)[0]

    def enclosed(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Two numbers between which lies what the multipliers prove, with the distances and costs that the files mean.

        See :meth:`bound`.
        """
        lower, growth = (exp_bounds(ends, data.epsilon)[up] for up, ends in enumerate(_lengths(self.pairs, data)))
        kept = Kept(pairs=self.pairs, growth=growth, starts=self.starts, rows=self.rows, values=self.values)
        low, high = kept.enclosed(weighted, weighted + data.shortfall(), OFF, lower)
        return (math.nextafter(low - data.excess, -math.inf) if data.excess else low), high

    def stating(self, data: MetricData, weighted: Floats, value: float) -> tuple[Self, float]:
        """With a unit at which no evaluation can be in doubt about what is stated; and that, no more than the loss.

        Args:
            data: the problem's.
            weighted: (N, K) costs, prior included.
            value: the loss that was reached.
        """
        low, high = self.enclosed(data, weighted)
        if not math.isfinite(high - low):
            return self, low
        doubt = max(high - low, FINEST * abs(low), 2.0**-1000)
        bottom, top = low - doubt / 4.0, high + doubt / 4.0
        if 0.0 <= low - value <= 1e-9 * max(1.0, abs(value)) or bottom > value:  # more is no rounding: solve refuses it
            bottom = min(bottom, value - 2.0**-51 * abs(value))
        wide = (top - bottom) * (1.0 + 2.0**-40)
        halves = math.floor(abs(bottom) / wide + 0.5) - 0.5
        unit = abs(bottom) / halves if halves > 0.0 else 2.0 * max(abs(bottom), abs(top))
        return evolve(self, unit=unit), rounded(low, unit, weighted)

    def stated(self, data: MetricData, weighted: Floats) -> float:
        """What a release says that they prove.

        Raises:
            CertificationError: as of :meth:`bound`; a unit so fine that what is stated is in doubt.
        """
        low, high = self.enclosed(data, weighted)
        found = rounded(low, self.unit, weighted)
        if math.isfinite(high - low) and (self.unit < FINEST * abs(low) or found != rounded(high, self.unit, weighted)):
            raise CertificationError(
                f"{PROOF}: a bound between {low!r} and {high!r} is proved, and unit {self.unit!r} is too fine: "
                f"wanted one at which both ends are rounded to the same, as solve writes it"
            )
        return found

    def write(self, folder: Path) -> None:
        """Write proof.npz."""
        arrays: dict[str, NDArray[Any]] = {
            "version": np.array([VERSION], dtype=np.int64),
            "unit": np.array([self.unit]),
            "pairs": self.pairs,
            "starts": self.starts,
            "rows": self.rows,
            "values": self.values,
        }
        with zipfile.ZipFile(folder / PROOF, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy")  # its date is the first that zip knows: same bytes every time
                member.compress_type = zipfile.ZIP_STORED if name == "values" else zipfile.ZIP_DEFLATED
                with archive.open(member, "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    @classmethod
    def read(cls, folder: Path, shape: tuple[int, int]) -> Self:
        """Read proof.npz.

        Args:
            folder: DIR.
            shape: (N, K) of the problem.

        Raises:
            InputError: it is missing or not of its form.
        """
        path = folder / PROOF
        size = path.stat().st_size if path.is_file() else 0
        parts = read_npz(path, ", ".join(KINDS), only=KINDS, largest=LARGEST * size + 8 * shape[1] + (1 << 16))
        faults = _form_faults(path.name, parts, shape[1]) or _number_faults(path.name, parts, shape[0])
        if faults:
            raise InputError(faults)
        arrays = {name: parts[name] for name in ("pairs", "starts", "rows", "values")}
        return cls(unit=float(parts["unit"][0]), **arrays)


def _form_faults(file: str, parts: Mapping[str, NDArray[Any]], outputs: int) -> list[Fault]:
    """Arrays that are missing, or of another type or shape."""
    missing = [Fault(file, name, "no such array", ", ".join(KINDS)) for name in KINDS if name not in parts]
    if missing:
        return missing
    count, many = (len(parts[name]) if parts[name].ndim else 0 for name in ("pairs", "rows"))
    shapes = {
        "version": (1,),
        "unit": (1,),
        "pairs": (count, 2),
        "starts": (outputs + 1,),
        "rows": (many,),
        "values": (many,),
    }
    return [
        Fault(file, name, f"{found.dtype} of shape {found.shape}", f"{' or '.join(kinds)} of shape {shapes[name]}")
        for name, kinds in KINDS.items()
        if (found := parts[name]).shape != shapes[name] or found.dtype.str not in {f"<{kind}" for kind in kinds}
    ]


def _number_faults(file: str, parts: Mapping[str, NDArray[Any]], records: int) -> list[Fault]:
    """Numbers that name nothing, stand twice or are none."""
    pairs, starts, rows, values = (parts[name] for name in ("pairs", "starts", "rows", "values"))
    count, many = len(pairs), len(rows)
    wrong = "numbers that will not do"
    faults = [
        Fault(file, name, wrong, wanted)
        for name, right, wanted in (
            ("version", parts["version"][0] == VERSION, f"version {VERSION}"),
            ("unit", 0.0 < parts["unit"][0] < math.inf, "a finite number above 0"),
            ("pairs", ((pairs >= 0) & (pairs < records)).all(), f"records from 0 to {records - 1}"),
            ("pairs", (pairs[:, 0] != pairs[:, 1]).all(), "two different records in each"),
            ("pairs", (np.diff(pairs @ [records, 1]) > 0).all(), "each pair once, by row"),
            ("starts", starts[0] == 0 and starts[-1] == many and (np.diff(starts) >= 0).all(), f"from 0 up to {many}"),
            ("rows", (rows < count).all(), f"places from 0 to {count - 1}"),
            ("values", (np.isfinite(values) & (values > 0)).all(), "finite numbers above 0"),
        )
        if not right
    ]
    if faults:
        return faults
    first = np.zeros(many, dtype=np.bool_)
    first[starts[:-1][starts[:-1] < many]] = True
    rising = np.diff(rows.astype(np.int64), prepend=-1) > 0
    return [] if (rising | first).all() else [Fault(file, "rows", wrong, "each row of an output once, in order")]


def prove(
    multipliers: Multipliers,
    data: MetricData,
    weighted: Floats,
    value: float,
    *,
    over: NDArray[np.bool_] | None,
    gap: float,
    room: float,
) -> tuple[Proof, float]:
    """What is stored of multipliers, and what is stated of the bound that it gives.

    All of them where a smaller proof would miss the gap asked for; fewer where they do not fit.

    Args:
        multipliers: any.
        data: the problem's.
        weighted: (N, K) costs, prior included.
        value: the loss that was reached.
        over: (P,) the required pairs that the multipliers belong to; all where None.
        gap: relative gap asked for.
        room: bytes.
    """
    spare = SPARE * min(gap, 1e-5) * abs(value)
    first = True
    while True:
        try:
            proof = Proof.of(multipliers, data, weighted, over=over, spare=spare, most=max(LONG, room / BYTES))
        except MemoryError:
            spare, first = max(10.0 * spare, 1e-9 * float(np.abs(weighted).sum())), False
            continue
        proof, bound = proof.stating(data, weighted, value)
        missed = value - bound - gap * abs(value)
        if first and 0.0 < missed <= 2.0 * spare:
            spare = 0.0
        elif first and missed > 0.0 and len(proof.values) > LONG and LOOSE * (value - bound) > spare:
            spare = LOOSE * (value - bound)
        else:
            return proof, bound
        first = False


def rounded(proved: float, unit: float, weighted: Floats) -> float:
    """What is stated of a bound: it is rounded down to an odd multiple of half a unit, then to a double.

    Where no cost is below 0 it is no less than 0. Programs that evaluate the same proof, each with its own error, state
    the same, since the unit is such that what is proved lies well between two multiples.
    """
    if not math.isfinite(proved):
        return proved
    found = float_down(
        (math.floor(Fraction(proved) / Fraction(unit) + Fraction(1, 2)) - Fraction(1, 2)) * Fraction(unit)
    )
    return max(0.0, found) if weighted.min() >= 0.0 else found


def multipliers_of(solution: Solution, data: MetricData, family: str = "geo-ind") -> Multipliers | None:
    """The duals of a solved model's privacy rows over ``data.needed``, as the exact bound takes them; None without.

    Raises:
        ModelError: the family's rows are not those of ``data.needed``, both ways, for every output.
    """
    if solution.duals is None:
        return None
    shape = (2, int(data.needed.sum()), len(data.outputs))
    duals = -np.asarray(solution.dual(family)) if shape[1] else np.zeros(0)
    if duals.size != math.prod(shape):
        raise ModelError(
            f"family {family} has {duals.size} rows, wanted {math.prod(shape)}: both ways of the {shape[1]} pairs of "
            f"data.needed, for {shape[2]} outputs"
        )
    forward, backward = duals.reshape(shape)
    return Multipliers.whole(forward, backward)


def _lengths(rows: Ints, data: MetricData) -> tuple[Floats, Floats]:
    """Two times (P,) doubles around the exact distances of rows: required pairs at their own, others along paths.

    Raises:
        CertificationError: no path of required pairs joins the two of a row.
    """
    pairs, known = data.pairs[data.surely_required], data.distances[data.surely_required]
    n = len(data.records)
    numbers, wanted = pairs @ [n, 1], np.sort(rows, axis=1) @ [n, 1]  # required pairs are in order
    place = np.minimum(np.searchsorted(numbers, wanted), max(0, len(numbers) - 1))
    required = numbers[place] == wanted if len(numbers) else np.zeros(len(rows), dtype=np.bool_)
    left = np.flatnonzero(~required)
    ends = []
    for lengths, error in ((known, -1.0), (data.metric.no_less(known), 1.0)):
        found = np.where(required, lengths[place] if len(lengths) else 0.0, np.inf)
        if len(left):
            found[left] = _along_paths(rows[left], pairs, lengths, n) * (1.0 + error * (n + 2.0) * 2.0**-52)
        ends.append(found)
    lost = np.flatnonzero(~np.isfinite(ends[1]))
    if len(lost):
        raise CertificationError(f"{PROOF}: pairs: {rows[lost[0]].tolist()} is neither required nor implied")
    return ends[0], ends[1]


def _along_paths(rows: Ints, pairs: Ints, lengths: Floats, records: int) -> Floats:
    """(P,) shortest paths over pairs: each sum is off by 2^-53 of itself at most for each pair of the path."""
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(records, pairs, lengths, both=True)
    found = np.empty(len(rows))
    order = np.argsort(rows[:, 0], kind="stable")
    for source, part in zip(*_grouped(rows[order, 0], order), strict=True):
        found[part] = dijkstra(graph, directed=True, indices=source)[rows[part, 1]]
    return found


def _grouped(sources: Ints, order: Ints) -> tuple[Ints, list[Ints]]:
    which, first = np.unique(sources, return_index=True)
    return which, np.split(order, first[1:])
