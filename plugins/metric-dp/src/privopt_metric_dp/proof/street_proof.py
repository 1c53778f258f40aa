"""A bound over reports anywhere on the streets, from multipliers of the outputs at the ends of their pieces.

For a loss that is the path length along undirected streets, outputs k in J, and a record i strictly inside a piece (a,
b) of length l, at s from a::

    u_ik = p_i c_ik + m_ik,  m_ik: what the multipliers of k add to it
    u*_i = (1 - s / l) m_ia + (s / l) m_ib
    bound = sum_i min(min over k in J of u_ik, u*_i)

Every mechanism that may report any record loses at least that, if each record is in J or strictly inside a piece with
both ends in J. If every piece has both ends in J, so does every mechanism that may report any point of any street.
Proof: weak duality with infinitely many outputs, where the point at t of a piece has the multipliers (1 - t / l) f_a +
(t / l) f_b. Of a record that is not inside, the cost at t is the least of d_ia + t and d_ib + l - t, so above its
chord. Of one inside it is the least of these and |t - s|: concave from 0 to s and from s to l, so what is left of it is
no less than the least of its values at 0, s (where the cost is 0) and l.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt.execution.compiled import jit
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.lagrangian_bound import SparseMultipliers, sum_down
from privopt_metric_dp.proof.proof_file import OFF, PROOF, growth_of
from privopt_metric_dp.proof.row_proof import Rows
from privopt_metric_dp.space.street_pieces import Inside, pieces_of

__all__ = ["Streets"]


@jit(few=lambda tail, *others: bool(tail.size <= 200 and others[7].size <= 2_000))
def _between(tail, head, rest, share, first, second, growth, values, spread, starts, rows, low, high):  # type: ignore[no-untyped-def]
    """Add, for each record inside a piece, its share of the multipliers' effect at both ends to low and high.

    Errors as in :func:`privopt_metric_dp.proof.lagrangian_bound._enclose`; shares are nearest doubles.
    """
    n = tail.shape[0]
    value, size, terms, loose = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(starts.size - 1):
        value[:], size[:], terms[:], loose[:] = 0.0, 0.0, 0.0, 0.0
        for m in range(starts[k], starts[k + 1]):
            p = rows[m]
            f = float(values[m])
            i, j = first[p], second[p]
            grown = growth[p] * f
            value[i] += f
            size[i] += f
            terms[i] += 1.0
            value[j] -= grown
            size[j] += grown
            terms[j] += 1.0
            loose[j] += spread[p] * f
        for i in range(n):
            for end in range(2):
                if (tail[i] if end == 0 else head[i]) == k:
                    part = rest[i] if end == 0 else share[i]
                    error = 1e-300
                    if terms[i] > 0.0:
                        error += size[i] * ((2.0 * terms[i] + 16.0) * 2.0**-53) * 2.0
                    below = value[i] - error
                    above = value[i] + (error + loose[i] * (1.0 + 2.0**-30))
                    low[i] += part * below - (abs(part * below) * 2.0**-49 + 1e-300)
                    high[i] += part * above + (abs(part * above) * 2.0**-49 + 1e-300)


@frozen(kw_only=True, eq=False)
class Streets(Rows):
    """Multipliers of priced records in place of outputs.

    Attributes:
        bound_outputs: (J,) int64 records, rising; ``starts`` (J + 1,) is over these.
    """

    VERSION: ClassVar = 4
    KINDS: ClassVar = {**Rows.KINDS, "bound_outputs": ("i8",)}

    bound_outputs: Ints

    def enclosed(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """See :meth:`Proof.enclosed`; costs are those of the priced records.

        Raises:
            CertificationError: also where the loss is not a path along the same undirected streets, or a record is
                neither priced nor inside a piece of street between two that are.
        """
        priced = self._priced(data)
        inside = inside_of(data, self.bound_outputs)
        lower, growth = growth_of(self.pairs, data)
        spread = np.where(lower < growth, growth - lower, 0.0)
        kept = SparseMultipliers(
            pairs=self.pairs, growth=growth, starts=self.starts, rows=self.rows, values=self.values
        )
        least, most, wild = kept.ends(priced.weighted, priced.weighted + priced.shortfall(), OFF, spread)
        if wild.any():
            return -math.inf, math.inf
        low, high = np.zeros(len(least)), np.zeros(len(least))
        first, second = (np.ascontiguousarray(self.pairs[:, end]) for end in (0, 1))
        rows = first, second, growth, self.values, spread, self.starts, self.rows
        _between(inside.tail, inside.head, inside.rest, inside.share, *rows, low, high)
        some = inside.tail >= 0
        least[some], most[some] = np.minimum(least, low)[some], np.minimum(most, high)[some]
        excess = float(priced.excess.sum()) * (1.0 + 2.0**-40)
        bound = sum_down(least)
        return math.nextafter(bound - excess, -math.inf) if excess else bound, -sum_down(-most)

    def _priced(self, data: MetricData) -> MetricData:
        if data.over is None:
            raise CertificationError(f"{PROOF}: bound_outputs must come with outputs that were chosen")
        return data.with_outputs(self.bound_outputs)

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """See :meth:`Proof.shapes`."""
        count = len(parts["bound_outputs"]) if parts["bound_outputs"].ndim else 0
        return super().shapes(parts, (shape[0], count)) | {"bound_outputs": (count,)}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """See :meth:`Proof.numbers`."""
        priced = parts["bound_outputs"]
        inside = bool(priced.size and priced[0] >= 0 and priced[-1] < shape[0] and (np.diff(priced) > 0).all())
        yield "bound_outputs", inside, f"records from 0 to {shape[0] - 1}, rising"
        yield from super().numbers({name: parts[name] for name in Rows.KINDS}, shape)

    @classmethod
    def of_rows(cls, rows: Rows, priced: Ints) -> Self:
        """Make a proof from multipliers over priced records (J,), as from those of any other outputs."""
        return cls(pairs=rows.pairs, starts=rows.starts, rows=rows.rows, values=rows.values, bound_outputs=priced)


def inside_of(data: MetricData, priced: Ints, to_priced: Floats | None = None) -> Inside:
    """Find where records lie between priced ones.

    Raises:
        CertificationError: the loss is not a path along undirected streets whose decimals are known, or a record is
            neither priced nor inside a piece of street between two that are.
    """
    streets = data.streets
    if streets is None:
        raise CertificationError(f"{PROOF}: bound_outputs: the loss must be a distance along undirected streets")
    return pieces_of(*streets, priced, to_priced)
