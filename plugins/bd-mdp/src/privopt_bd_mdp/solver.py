"""Solvers for the decomposition of one problem: the methods of optimal-lp, then Benders rounds from what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, evolve, field

from privopt.arrays import Floats, Ints
from privopt.decompose.benders import Benders, Start
from privopt.errors import RegistryError, SolverError
from privopt.interfaces import Decomposed, Decomposer, SolveContext
from privopt.registry import registry
from privopt.search.offers import evaluate
from privopt_bd_mdp.model import PMO, PathRows
from privopt_bd_mdp.partition import Partition, make_partition
from privopt_bd_mdp.partitioners import Records, partition
from privopt_bd_mdp.problem import Decomposition
from privopt_metric_dp.solvers.auto import Room, solve
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part, PartOffers, Solver
from privopt_metric_dp.solvers.star import StarSolver

__all__ = ["OWN", "Parts", "decompose", "partition_of"]

Improve = Callable[[Floats | None, Floats | None], None]
"""Called with multipliers and a point after each round."""
OWN: Final = "benders"
"""The decomposition of this module; every other method is a registered decomposer's name."""
HALF_SHARE: Final = 0.5
"""Where a round of columns leaves more than this share of the gap the interior point takes over."""
A_NUMBER: Final = 1500.0
"""Bytes of a coefficient of the program while it is made, cut up, and held by the solvers of master and blocks,
measured (tests/test_bd_memory.py)."""
A_SLOPE: Final = 120.0
"""Bytes of an entry of a cut: with the driver, and in the master's solver."""
BLOCK_CUTS: Final = 40
"""Cuts a block that the master holds, about: those without a multiplier for some rounds are dropped."""


def partition_of(instance: Instance, options: Decomposition, subsets: int) -> Partition:
    """Partition of the records of a connected instance; one end of each crossing pair is its boundary."""
    records = Records(
        edges=instance.pairs, lengths=instance.distances, count=instance.records, coordinates=instance.coordinates
    )
    return make_partition(partition(options.partition, records, subsets), instance.pairs)


def decompose(instance: Instance, options: Decomposition, context: SolveContext) -> Solution:
    """Solve an instance to ``context.gap``, in doubles.

    Records at distance 0 are merged, implied pairs dropped, components solved one by one (Property 3.1).

    Returns:
        The answer; its details hold ``parts``, figures of each connected part that had to be decomposed, and ``path``.

    Raises:
        SolverError: a solver failed.
    """
    parts = Parts(instance, options, context)
    answer = solve(
        instance,
        method=parts,
        gap=context.gap,
        search_time=context.search_time,
        memory=context.free_memory,
        progress=context.report,
    )
    return evolve(answer, details={"parts": tuple(parts.figures), "path": answer.details["path"]})


class Parts:
    """The ladder of a whole instance's connected parts, and figures of those that had to be decomposed.

    Attributes:
        figures: of each, in the order in which they were begun.
    """

    def __init__(self, instance: Instance, options: Decomposition, context: SolveContext) -> None:
        self.records, self.options, self.context = instance.records, options, context
        self.figures: list[dict[str, Any]] = []

    def __call__(self, part: Part, memory_left: Room) -> Iterator[Solver]:
        """Yield what rounds begin with: methods of optimal-lp, or the star alone, or nothing; then Benders."""
        options, context = self.options, self.context
        folder = None if context.checkpoint is None else context.checkpoint / f"part-{len(self.figures)}"
        subsets = max(1, round(options.subsets * part.instance.records / self.records))
        division = partition_of(part.instance, options, subsets)
        figures = _count_figures(part.instance, division)
        self.figures.append(figures)
        ours = context.method == OWN
        if ours and options.start != "cold":
            yield StarSolver()
        if ours and options.start == "auto":
            if part.starred:
                yield ColumnGeneration(most_left=HALF_SHARE)
            yield InteriorPoint()
        yield _Rounds(division, options, evolve(context, checkpoint=folder), figures)


def _count_figures(instance: Instance, division: Partition) -> dict[str, Any]:
    """Figures of a part before anything is solved."""
    return {
        "records": instance.records,
        "pairs": len(instance.pairs),
        "subsets": int(division.subset.max()) + 1,
        "boundary": int(division.boundary.sum()),
        "boundary_both_sides": division.border_count,
        "pairs_between_subsets": division.crossing,
        "blocks": len(division.sizes),
        "largest_block": int(division.sizes.max(initial=0)),
        "block_sizes": division.sizes.tolist(),
        "block_boundaries": division.count_neighbours(instance.pairs).tolist(),
        "rounds": 0,
    }


@define(eq=False)
class _Rounds:
    """Rounds of a decomposition: Benders' from the best that is known, or those of the registered decomposer named."""

    partition: Partition
    options: Decomposition
    context: SolveContext
    figures: dict[str, Any]
    name: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.name = self.context.method

    def peak_bytes(self, part: Part) -> float:
        """Return what Benders' rounds take next to what is held: the program, its parts, paths, and cuts.

        A cut of a block speaks of the boundary records next to it. Of another decomposer no one knows.
        """
        if self.name != OWN:
            return 0.0
        instance = part.instance
        records, outputs = instance.cost.shape
        numbers = outputs * (4.0 * len(instance.pairs) + 2.0 * records)
        slopes = outputs * float(self.partition.count_neighbours(instance.pairs).sum())
        return float(A_NUMBER * numbers + A_SLOPE * BLOCK_CUTS * slopes + 40.0 * records**2)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """See :class:`Solver`.

        Raises:
            RegistryError: a decomposer returned something else than a decomposition's answer.
        """
        pmo = PMO.of(part.instance)
        blocks = [pmo.columns_of(members) for members in self.partition.members()]

        def offer(duals: Floats | None, x: Floats | None) -> None:
            """Offer a point and multipliers as the part's."""
            z = None if x is None else pmo.matrix(x)
            multipliers = None if duals is None else pmo.multipliers(duals)
            offers.offer(
                self.name,
                candidate=z,
                value=None if z is None else pmo.instance.loss(z),
                bound=None if multipliers is None else dual_bound(pmo.instance, multipliers)[0],
                proof=multipliers,
            )

        if self.name == OWN:
            result = self._run_benders(pmo, blocks, offers, offer)
        else:
            decomposer: Decomposer = registry().kind("decomposer", self.name).load()()
            result = decomposer.solve(pmo.form, blocks, self.context)
        if not isinstance(result, Decomposed):
            raise RegistryError(f"decomposer {self.name}: solve() must return Decomposed, got {type(result).__name__}")
        self.figures.update({"rounds": result.rounds, **result.details})
        offer(result.duals, result.x)

    def _run_benders(self, pmo: PMO, blocks: list[Ints], offers: PartOffers, improve: Improve) -> Decomposed:
        best = offers.best
        start = Start(x=None if best.candidate is None else evaluate(best.candidate).ravel())
        if self.options.start != "cold" and best.proof is not None:
            start = evolve(start, multipliers=[pmo.to_duals(evaluate(best.proof))])
        context, valid = evolve(self.context, gap=offers.gap), PathRows(pmo, self.partition)
        try:
            return Benders(solver=self.context.solver).solve(
                pmo.form, blocks, context, start=start, valid=valid, improve=improve
            )
        except SolverError as error:  # numbers that no solver can take: what is known already stands, with its bound
            self.figures["benders_failed"] = str(error)
            raise
