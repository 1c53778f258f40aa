"""The stored form of a proof by tree multipliers: prices, and each record's parent for every output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.errors import CertificationError
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.proof_file import OFF, PROOF, Proof, growth_of
from privopt_metric_dp.proof.tree_multipliers import Forest

__all__ = ["Trees"]


@frozen(kw_only=True, eq=False)
class Trees(Proof):
    """Prices, and trees for each output, to compute multipliers with :mod:`privopt_metric_dp.proof.tree_multipliers`.

    Attributes:
        prices: (N,) float64, finite.
        trees: (K, N) uint16 or uint32, :attr:`privopt_metric_dp.proof.tree_multipliers.Forest.codes`.
    """

    VERSION: ClassVar = 3
    KINDS: ClassVar = {"prices": ("f8",), "trees": ("u2", "u4")}

    prices: Floats
    trees: NDArray[np.unsignedinteger[Any]]

    def enclosed(self, data: MetricData, weighted: Floats) -> tuple[float, float]:
        """See :meth:`Proof.enclosed`."""
        forest = Forest(prices=self.prices, codes=self.trees)
        pairs, places = forest.edges()
        growth, top = growth_of(pairs, data), weighted + data.shortfall()
        found = forest.enclosed(weighted, top, OFF, data.excess, places, growth)
        if found is None:
            raise CertificationError(f"{PROOF}: trees: records that hang on one another in a circle")
        return found

    @classmethod
    def shapes(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """See :meth:`Proof.shapes`."""
        return {"prices": shape[:1], "trees": shape[::-1]}

    @classmethod
    def numbers(cls, parts: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Iterator[tuple[str, bool, str]]:
        """See :meth:`Proof.numbers`."""
        yield "prices", bool(np.isfinite(parts["prices"]).all()), "finite numbers"
