"""Column generation over rays of the privacy cone (Dantzig-Wolfe), with combinatorial pricing.

A ray is a vector over the records that satisfies every privacy constraint. The master problem has one row per record,
and one column per ray ``z`` with the cost ``min_k cost_k . z``. Pricing runs one network simplex per output
(`privopt_metric_dp.solvers.tree_pricing`), warm-started from the output's previous tree. The prices used lie between
the best prices so far and the master problem's prices (in-out stabilisation, Ben-Ameur and Neto 2007). Since the rows
of a mechanism sum to one, every pricing round also gives a Lagrangian bound
(`privopt_metric_dp.solvers.star.anchored_bound`).
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.search.offers import Later
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.restricted_master import RAYS_PER_RECORD, Mixture
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.solvers.star import StarSolver, anchored_bound, kernel_of, proof, star_trees
from privopt_metric_dp.solvers.symmetry import Symmetry
from privopt_metric_dp.solvers.tree_pricing import price_all

__all__ = ["ColumnGeneration"]

SOFTER = (0.5,)
"""The exponents to which the star's kernel is raised to obtain additional initial rays.

An exponent of x gives the kernel at x times epsilon."""
BYTES_A_NUMBER, BYTES_AN_ENTRY, SESSION_BYTES = 24.0, 136.0, 20e6
"""The number of bytes per entry of a ray, per nonzero coefficient in the LP, and for the LP solver.

An entry is stored in the ray, in the key that identifies the ray, and in a copy while rays are added. For 100, 225, 300
and 400 scattered records with 1,225, 2,084, 2,811 and 1,871 rays, column generation took 30, 97, 131 and 107 MB in
total."""
LAST_ROUND = 1000
"""The maximum number of rounds before the method gives up."""


def _seed_rays(instance: Instance, symmetry: Symmetry, kernel: Floats) -> Floats:
    """Return the initial rays for the master problem of column generation.

    A ray is a vector of N entries that satisfies every privacy constraint ``z_i <= exp(eps d_ij) z_j``. Up to scale, it
    is therefore a column of a mechanism. The initial rays are the star's rays, powers of these rays with the exponents
    in `SOFTER`, and a ray with equal entries.

    The master problem contains only one representative output from each orbit, i.e. each set of outputs that symmetries
    map to one another. Each of the star's rays is therefore mapped by a symmetry to a ray that serves a representative
    output.

    Args:
        instance: The problem.
        symmetry: The symmetries of the problem.
        kernel: Array of shape (N, N) with the star's rays. Row s is ``exp(-eps D(s, .))``, where ``D(s, .)`` are the
            lengths of the shortest paths from record s.

    Returns:
        Array of shape (R, N) with one ray per row.
    """
    # Each orbit (a set of records that symmetries map to one another) is represented by its smallest record.
    orbit_kernel = kernel[np.unique(symmetry.records.min(axis=0))]
    # A ray serves the output at which it costs least.
    serves = (orbit_kernel @ instance.cost).argmin(axis=1)
    # The symmetry g for each output that maps the representative of its orbit to it.
    _, member = symmetry.origin()
    # A ray z that serves the output g(r) is moved to z(g(.)), which has the same cost at the representative r.
    placed = np.take_along_axis(orbit_kernel, symmetry.records[member[serves]], axis=1)
    return np.concatenate([placed, *(placed**exponent for exponent in SOFTER), np.ones((1, instance.records))])


class ColumnGeneration:
    """A solver that uses column generation to improve a mixture of rays from the privacy cone.

    A ray is a vector over the records that satisfies every privacy constraint, and a mixture is a weighted sum of rays
    that forms a mechanism. The first rays come from the star, a closed-form mechanism. If the star is a mechanism for
    the part, this solver runs after :class:`StarSolver`. Otherwise, it runs only if it was requested by name, or if
    earlier methods failed or needed too much memory.

    Attributes:
        most_left: The largest allowed ratio of the gap after a round to the gap before it.
    """

    name = "column-generation"

    def __init__(self, *, most_left: float = np.inf) -> None:
        """Create the solver.

        Args:
            most_left: The largest allowed ratio of the gap after a round to the gap before it. If the ratio is larger,
                the solver fails, so that the next method takes over.
        """
        self.most_left = most_left

    def peak_bytes(self, part: Part) -> float:
        """Estimate the peak memory in bytes for the star's kernel and trees, the LP solver and the stored rays."""
        records, orbits = part.instance.records, len(part.symmetry.size)
        # Rays are dropped only once there are twice as many as are kept.
        rays = 2.0 * RAYS_PER_RECORD * records
        total = (
            StarSolver().peak_bytes(part) + SESSION_BYTES + rays * (BYTES_A_NUMBER * records + BYTES_AN_ENTRY * orbits)
        )
        return 1.1 * total  # peaks of up to a tenth more were measured, with 225 records and with 2,000

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Improve a mixture of rays and its lower bound until the gap is reached.

        Each round solves the restricted master problem and offers its mixture of rays as a mechanism. It then prices
        every output, offers the Lagrangian bound from these prices, and adds the rays with negative reduced costs.

        Args:
            part: A connected part. The kernel of its star provides the first rays and trees.
            offers: The search that receives mechanisms, bounds and multipliers.

        Raises:
            SolverError: No further ray was found before the gap was reached, more than the fraction ``most_left`` of
                the gap was left after a round, or the gap was not reached in `LAST_ROUND` rounds.
            OutOfTime: The time limit expired.
        """
        instance, graph, symmetry = part.instance, part.graph, part.symmetry
        reduced_instance, kernel = symmetry.keep_representatives(instance), kernel_of(graph, symmetry)
        trees = star_trees(graph, (kernel @ reduced_instance.cost).argmin(axis=0))
        mixture = Mixture(reduced_instance, symmetry, _seed_rays(instance, symmetry, kernel))
        # `lower` is the largest bound so far, and `best` are the prices that gave it. `pull` says how far prices are
        # moved from the master's prices towards `best`, as a fraction. It is adapted between 0.3 and 0.8.
        best, lower, pull = np.zeros(instance.records), -np.inf, 0.5
        gap = offers.best.value - offers.best.bound
        for _ in range(LAST_ROUND):
            z, _loss, prices = mixture.solve()
            if z is not None:
                offers.offer(self.name, candidate=z, value=instance.loss(z))
            added, better = 0, False
            # Outputs are first priced between the best prices and the master's (in-out stabilisation). If this finds no
            # ray, they are priced at the master's own prices, where a lack of rays means that the master problem is
            # optimal over all rays.
            for pull_share in (pull, 0.0) if np.isfinite(lower) else (0.0,):
                y = best + (1 - pull_share) * (prices - best) if pull_share else prices
                priced = price_all(graph, reduced_instance, y, trees)
                bound = anchored_bound(symmetry, y, priced)
                if bound > lower:
                    best, lower, better = y, bound, True
                    # The trees are copied because the next pricing changes them in place.
                    bound_proof = Later(proof, instance, symmetry, y, trees.copy())
                    offers.offer(self.name, bound=bound, proof=bound_proof)
                added += mixture.add_priced(priced.ray, priced.value)
                if added:
                    # If this improved the bound, the next prices are pulled closer to the best ones. If not, they stay
                    # closer to the master's.
                    pull = min(0.8, pull + 0.1) if better and pull_share else max(0.3, pull - 0.2)
                    break
            offers.note("", columns=len(mixture.rays), symmetries=symmetry.order)
            if offers.has_reached_gap:
                return
            if not added and not better:
                raise SolverError("it found no further ray before the gap was reached")
            previous_gap, gap = gap, offers.best.value - offers.best.bound
            if gap > self.most_left * previous_gap:
                raise SolverError(f"a round left more than {self.most_left:g} of the gap open")
            mixture.clean(prices)
        raise SolverError(f"the gap was not reached in {LAST_ROUND} rounds")
