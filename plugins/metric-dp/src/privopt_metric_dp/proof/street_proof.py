"""A lower bound for reports anywhere on the streets, from multipliers for the outputs at the ends of street pieces.

Let the loss be the path length along undirected streets, and J a set of outputs. Record i has prior p_i, and c_ik is
its cost for output k. The multipliers f_k for output k add the amount m_ik to the record's reduced cost. Suppose that
record i lies strictly inside a piece (a, b) of length l, at distance s from a. Then::

    u_ik = p_i c_ik + m_ik
    u*_i = (1 - s / l) m_ia + (s / l) m_ib
    bound = sum_i min(min over k in J of u_ik, u*_i)

For a record in J, the minimum does not include a term u*_i. If each record is in J or strictly inside a piece with both
ends in J, then no mechanism that reports records has a loss below this bound. If every piece has both ends in J, this
is also true of mechanisms that report arbitrary points on the streets.

The proof applies weak duality to infinitely many outputs. The point at distance t from a has the multipliers
``(1 - t / l) f_a + (t / l) f_b``. For a record outside the piece, the cost at t is the smaller of d_ia + t and
d_ib + l - t, where d_ia and d_ib are the record's distances to the ends of the piece. This function is concave, so it
lies above its chord. For a record inside the piece, the cost at t is the smallest of d_ia + t, d_ib + l - t and
|t - s|. It is concave from 0 to s and from s to l. The reduced cost is therefore at least the smallest of its values at
0, at s (where the cost is 0) and at l.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.proof_file import PROOF
from privopt_metric_dp.proof.row_proof import Rows
from privopt_metric_dp.space.street_pieces import Inside, pieces_of

__all__ = ["Streets"]


@frozen(kw_only=True, eq=False)
class Streets(Rows):
    """A proof of a bound for reports anywhere on the streets.

    The multipliers are for a separate set of outputs, the priced records, which may differ from the release's outputs.

    Attributes:
        bound_outputs: Array of shape (J,) and type int64 with the indices of the priced records in ascending order. The
            J + 1 offsets in ``starts`` belong to these records.
    """

    VERSION: ClassVar = 4
    KINDS: ClassVar = {**Rows.KINDS, "bound_outputs": ("i8",)}

    bound_outputs: Ints

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """Return two doubles that enclose the bound over all streets (see :meth:`Proof.enclose_bound`).

        Args:
            data: The problem's data, with chosen outputs.
            weighted: Unused, because the bound depends on the costs of the priced records instead. These are the
                records for which the proof contains multipliers.

        Raises:
            CertificationError: A constraint belongs to a pair that the guarantee neither covers nor implies, the
                problem does not choose outputs, the loss is not a path length along undirected streets, or a record is
                neither priced nor inside a street piece between two priced records.
        """
        if data.over is None:
            raise CertificationError(f"{PROOF}: bound_outputs must be omitted unless the problem chooses outputs")
        # ``weighted`` contains the costs of the chosen outputs. Those of the priced records are computed from the
        # problem's files.
        priced = data.with_outputs(self.bound_outputs)
        return self._enclose_over(priced, priced.weighted, inside_of(data, self.bound_outputs))

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Return the expected shapes of the arrays, as in `Rows` but with J priced records instead of K outputs."""
        count = len(parts["bound_outputs"]) if parts["bound_outputs"].ndim else 0
        return super().shapes(parts, (shape[0], count)) | {"bound_outputs": (count,)}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """Yield the conditions of `Rows.numbers`, preceded by a condition on the indices of the priced records."""
        priced = parts["bound_outputs"]
        is_valid = bool(priced.size and priced[0] >= 0 and priced[-1] < shape[0] and (np.diff(priced) > 0).all())
        yield "bound_outputs", is_valid, f"record numbers from 0 to {shape[0] - 1}, in increasing order"
        yield from super().numbers({name: parts[name] for name in Rows.KINDS}, shape)


def inside_of(data: MetricData, priced: Ints, to_priced: Floats | None = None) -> Inside:
    """Return the positions of the records inside street pieces between two priced records.

    A record is priced if the proof contains multipliers for it as an output.

    Args:
        data: The problem's data.
        priced: Array of shape (J,) with the indices of the priced records in ascending order.
        to_priced: Array of shape (N, J) with the distances from records to priced records. It is only needed for
            ``Inside.chord``. If None, the chord is 0.

    Raises:
        CertificationError: The loss is not a path length along undirected streets whose lengths are known as exact
            decimals, or a record is neither priced nor inside a street piece between two priced records.
    """
    streets = data.streets
    if streets is None:
        raise CertificationError(f"{PROOF}: bound_outputs: the loss must be a distance along undirected streets")
    return pieces_of(*streets, priced, to_priced)
