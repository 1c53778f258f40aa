"""Solvers for bd-mdp: methods of optimal-lp provide a warm start, from which Benders decomposition continues.

:class:`Parts` chooses the solvers for each connected component of the graph of required pairs. :func:`decompose` runs
them in floating point, without certifying the result or writing a release.
"""

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
"""The type of a callback that receives the best dual and primal solutions so far in each Benders iteration.

The dual solution is the one that proves the best bound. Either argument is None if no such solution has been found yet.
"""
OWN: Final = "benders"
"""The name of the decomposition method implemented in this module. Any other name denotes a registered decomposer."""
HALF_SHARE: Final = 0.5
"""The largest share of the gap that a round of column generation may leave open.

If a round leaves more than this share of the previous gap, column generation fails, and the interior point method takes
over.
"""
A_NUMBER: Final = 1500.0
"""The memory, in bytes, needed per coefficient of the program, as measured by tests/test_bd_memory.py.

It covers building and splitting the program, and the copies held by the solvers of the master problem and the blocks.
"""
A_SLOPE: Final = 120.0
"""The memory, in bytes, used by the Benders driver and the master's solver together per non-zero entry of a cut."""
BLOCK_CUTS: Final = 40
"""The approximate number of cuts per block in the master problem. Cuts with a multiplier of 0 are dropped."""


def partition_of(instance: Instance, options: Decomposition, subsets: int) -> Partition:
    """Partition the records of a connected instance into a boundary and blocks.

    The boundary contains at least one record of each required pair that joins two subsets.

    Args:
        instance: The instance, whose records and required pairs form the graph to partition.
        options: The ``[bd-mdp]`` table, which names the partitioner.
        subsets: The maximum number of subsets.
    """
    records = Records(
        edges=instance.pairs, lengths=instance.distances, count=instance.records, coordinates=instance.coordinates
    )
    return make_partition(partition(options.partition, records, subsets), instance.pairs)


def decompose(instance: Instance, options: Decomposition, context: SolveContext) -> Solution:
    """Solve an instance in floating point to within the optimality gap ``context.gap``.

    Records at distance 0 from one another are merged, implied pairs are dropped, and each connected component is solved
    separately (Property 3.1).

    Args:
        instance: The instance to solve.
        options: The ``[bd-mdp]`` table of the problem file.
        context: The method, optimality gap and limits of the run.

    Returns:
        The solution. Its details contain ``parts``, the statistics of each decomposed component, and ``path``, which
        names the solvers that ran.

    Raises:
        SolverError: A solver failed.
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
    """A callable that chooses which solvers to run on each part of an instance.

    A part is a connected component of the graph whose edges are the required pairs. Parts can be solved independently.

    Attributes:
        records: The number of records in the whole instance.
        options: The ``[bd-mdp]`` table of the problem file.
        context: The run's method, optimality gap, limits and checkpoint folder.
        figures: One dictionary of statistics (see :func:`_count_figures`) for each part on which a solver has been
            started.
    """

    def __init__(self, instance: Instance, options: Decomposition, context: SolveContext) -> None:
        """Store the options of the run and the number of records in ``instance``."""
        self.records, self.options, self.context = instance.records, options, context
        self.figures: list[dict[str, Any]] = []

    def __call__(self, part: Part, memory_left: Room) -> Iterator[Solver]:
        """Yield the solvers to run on a part: those that provide a warm start, followed by the decomposition.

        The warm start of Benders decomposition depends on ``options.start``. With ``"auto"``, methods of ``optimal-lp``
        first search for a good matrix and good multipliers. With ``"star"``, the iterations start from the star
        mechanism, a closed form based on shortest-path distances. With ``"cold"``, there is no warm start. Registered
        decomposers never receive one.

        Args:
            part: A connected component of the instance.
            memory_left: A function that returns the number of bytes that can still be allocated. Not used here.
        """
        options, context = self.options, self.context
        folder = None if context.checkpoint is None else context.checkpoint / f"part-{len(self.figures)}"
        # The subsets are distributed over the parts in proportion to the number of records.
        subsets = max(1, round(options.subsets * part.instance.records / self.records))
        division = partition_of(part.instance, options, subsets)
        figures = _count_figures(part.instance, division)
        self.figures.append(figures)
        is_benders = context.method == OWN
        # Registered decomposers cannot use a starting point, but Benders profits from a good one and from good
        # multipliers.
        if is_benders and options.start != "cold":
            yield StarSolver()
        if is_benders and options.start == "auto":
            # The caller runs each solver before it asks for the next one, so by now StarSolver has set `starred`, which
            # says whether the star's closed form is a valid mechanism for this part. Column generation is worthwhile
            # only if it is.
            if part.starred:
                yield ColumnGeneration(most_left=HALF_SHARE)
            yield InteriorPoint()
        yield _Rounds(division, options, evolve(context, checkpoint=folder), figures)


def _count_figures(instance: Instance, division: Partition) -> dict[str, Any]:
    """Return the statistics of a connected component and its partition for result.json and the report.

    ``boundary`` is the number of records in the master problem, and ``boundary_both_sides`` the number of records that
    form a required pair with a record in another subset. All records outside the boundary belong to blocks, each of
    which is a subproblem.

    ``_Rounds.solve`` later updates ``rounds`` and adds the decomposer's own statistics.

    Args:
        instance: The connected component.
        division: The partition of the component's records.
    """
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
    """A solver that runs either Benders decomposition or a registered decomposer on one part.

    Attributes:
        partition: The partition of the part's records.
        options: The ``[bd-mdp]`` table of the problem file.
        context: The limits of the run, with a checkpoint folder for this part alone.
        figures: The part's statistics for the report, which :meth:`solve` updates.
        name: The decomposition method, either :data:`OWN` or the name of a registered decomposer.
    """

    partition: Partition
    options: Decomposition
    context: SolveContext
    figures: dict[str, Any]
    name: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.name = self.context.method

    def peak_bytes(self, part: Part) -> float:
        """Estimate the additional memory, in bytes, that Benders decomposition needs at its peak.

        The estimate covers the program, its split into a master problem and blocks, and the cuts. A block's cut has one
        entry per output for each boundary record that forms a required pair with one of the block's records. For a
        registered decomposer the result is 0, because its memory use is unknown.
        """
        if self.name != OWN:
            return 0.0
        instance = part.instance
        records, outputs = instance.cost.shape
        # Per output, a pair has two rows with two coefficients each, and a record has a cost and a coefficient in its
        # mass row.
        numbers = outputs * (4.0 * len(instance.pairs) + 2.0 * records)
        cut_entries = outputs * float(self.partition.count_neighbours(instance.pairs).sum())
        # The last term covers the (N, N) tables of PathRows, which take about 40 bytes per pair of records.
        return float(A_NUMBER * numbers + A_SLOPE * BLOCK_CUTS * cut_entries + 40.0 * records**2)

    def solve(self, part: Part, offers: PartOffers) -> None:
        """Solve a part by decomposition, giving ``offers`` all matrices and multipliers that are found.

        Args:
            part: A connected component of the instance.
            offers: The collector of matrices (with their losses) and multipliers (with their bounds).

        Raises:
            RegistryError: A registered decomposer returned something other than ``Decomposed``.
            SolverError: Benders decomposition failed.
        """
        # A block is given as a set of columns. Columns in no block belong to boundary records and form the master
        # problem.
        pmo = PMO.of(part.instance)
        blocks = [pmo.columns_of(members) for members in self.partition.members()]

        def offer(duals: Floats | None, x: Floats | None) -> None:
            """Pass a dual and a primal solution to the collector ``offers``.

            Args:
                duals: The dual value of each row of the program, or None if no dual solution has been found.
                x: The value of each column of the program, or None if no primal solution has been found.
            """
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
        """Run Benders decomposition, starting from the best matrix and multipliers found by earlier solvers.

        If ``options.start`` is ``"cold"``, the multipliers are not used.

        Args:
            pmo: The part's linear program.
            blocks: The indices of the program's columns in each block.
            offers: The collector, which holds the best results so far and the required optimality gap.
            improve: The function to call in each iteration with the best dual and primal solutions so far.

        Raises:
            SolverError: A solver failed on the master problem or on a block.
        """
        best = offers.best
        # Offered candidates and proofs may be computed lazily, in which case evaluate() computes them now.
        start = Start(x=None if best.candidate is None else evaluate(best.candidate).ravel())
        if self.options.start != "cold" and best.proof is not None:
            start = evolve(start, multipliers=[pmo.to_duals(evaluate(best.proof))])
        context, valid = evolve(self.context, gap=offers.gap), PathRows(pmo, self.partition)
        try:
            return Benders(solver=self.context.solver).solve(
                pmo.form, blocks, context, start=start, valid=valid, improve=improve
            )
        except SolverError as error:
            # Some coefficients are too extreme for a solver. The reason is kept for the report, and matrices and bounds
            # offered earlier remain valid.
            self.figures["benders_failed"] = str(error)
            raise
