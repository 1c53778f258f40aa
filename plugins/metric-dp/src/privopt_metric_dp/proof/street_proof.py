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
    """Multipliers of priced records in place of outputs.

    Attributes:
        bound_outputs: (J,) int64 records, rising; ``starts`` (J + 1,) is over these.
    """

    VERSION: ClassVar = 4
    KINDS: ClassVar = {**Rows.KINDS, "bound_outputs": ("i8",)}

    bound_outputs: Ints

    def enclose_bound(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """See :meth:`Proof.enclose_bound`; costs are those of the priced records.

        Raises:
            CertificationError: also where the loss is not a path along the same undirected streets, or a record is
                neither priced nor inside a piece of street between two that are.
        """
        if data.over is None:
            raise CertificationError(f"{PROOF}: bound_outputs must come with outputs that were chosen")
        priced = data.with_outputs(self.bound_outputs)
        return self._enclose_over(priced, priced.weighted, inside_of(data, self.bound_outputs))

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """See :meth:`Proof.shapes`."""
        count = len(parts["bound_outputs"]) if parts["bound_outputs"].ndim else 0
        return super().shapes(parts, (shape[0], count)) | {"bound_outputs": (count,)}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """See :meth:`Proof.numbers`."""
        priced = parts["bound_outputs"]
        is_valid = bool(priced.size and priced[0] >= 0 and priced[-1] < shape[0] and (np.diff(priced) > 0).all())
        yield "bound_outputs", is_valid, f"records from 0 to {shape[0] - 1}, rising"
        yield from super().numbers({name: parts[name] for name in Rows.KINDS}, shape)


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
