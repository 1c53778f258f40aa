"""Column generation over rays of the cone (Dantzig-Wolfe), with combinatorial pricing.

The master problem has one row per record and one column per ray ``z``, which costs ``min_k cost_k . z``. Pricing takes
one network simplex per output (`privopt_metric_dp.solvers.tree_pricing`), warm-started from its last tree. The prices
lie between the best ones so far and those of the master (in-out stabilisation, Ben-Ameur and Neto 2007). Since rows sum
to one, every pricing gives the Lagrangian bound ``sum y + sum over anchors of min(0, values)``.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.search.offers import Later
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.restricted_master import Mixture
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.star import StarSolver, anchored_bound, kernel_of, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import price_all

__all__ = ["ColumnGeneration"]

SOFTER = (0.5,)
"""Exponents of the star's kernel that give further seed rays: kernels at these shares of epsilon."""
LAST_ROUND = 1000


def _seed_rays(instance: Instance, symmetry: Symmetry, kernel: Floats) -> Floats:
    """Return the star's rays, moved so that they serve a representative output, softer ones, and the constant ray."""
    orbit_kernel = kernel[np.unique(symmetry.records.min(axis=0))]
    serves = (orbit_kernel @ instance.cost).argmin(axis=1)
    _, member = symmetry.origin()
    placed = np.take_along_axis(orbit_kernel, symmetry.records[member[serves]], axis=1)
    return np.concatenate([placed, *(placed**exponent for exponent in SOFTER), np.ones((1, instance.records))])


class ColumnGeneration:
    """Column generation from the star's rays."""

    name = "column-generation"

    def __init__(self, *, most_left: float = np.inf) -> None:
        """Set the progress that is required of each round.

        Args:
            most_left: Share of the gap that a round may leave. If it leaves more, the next method takes over.
        """
        self.most_left = most_left

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory: the star's kernel and trees, and several rays per record."""
        return StarSolver().peak_bytes(part) + 8.0 * 6 * part.instance.records**2

    def solve(self, part: Part, offers: PartOffers) -> None:
        """See :class:`privopt_metric_dp.solvers.solver.Solver`."""
        instance, graph, symmetry = part.instance, part.graph, part.symmetry
        reduced_instance, kernel = symmetry.reduced(instance), kernel_of(graph, symmetry)
        trees = star_trees(graph, (kernel @ reduced_instance.cost).argmin(axis=0))
        mixture = Mixture(reduced_instance, symmetry, _seed_rays(instance, symmetry, kernel))
        best, lower, pull = np.zeros(instance.records), -np.inf, 0.5
        gap = offers.best.value - offers.best.bound
        for _ in range(LAST_ROUND):
            z, _loss, prices = mixture.solve()
            if z is not None:
                offers.offer(self.name, candidate=z, value=instance.loss(z))
            added, better = 0, False
            for pull_share in (pull, 0.0) if np.isfinite(lower) else (0.0,):
                y = best + (1 - pull_share) * (prices - best) if pull_share else prices
                priced = price_all(graph, reduced_instance, y, trees)
                bound = anchored_bound(symmetry, y, priced)
                if bound > lower:
                    best, lower, better = y, bound, True
                    bound_proof = Later(proof, instance, symmetry, y, trees.copy())
                    offers.offer(self.name, bound=bound, proof=bound_proof)
                added += mixture.add_priced(priced.ray, priced.value)
                if added:
                    pull = min(0.8, pull + 0.1) if better and pull_share else max(0.3, pull - 0.2)
                    break
            offers.note("", columns=len(mixture.rays), symmetries=symmetry.order)
            if offers.reached:
                return
            if not added and not better:
                raise SolverError("it found no further ray before the gap")
            previous_gap, gap = gap, offers.best.value - offers.best.bound
            if gap > self.most_left * previous_gap:
                raise SolverError(f"a round left more than {self.most_left:g} of the gap")
            mixture.clean(prices)
        raise SolverError(f"the gap was not reached in {LAST_ROUND} rounds")
