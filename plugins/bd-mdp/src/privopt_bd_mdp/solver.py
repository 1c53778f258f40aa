"""The decomposition of one problem: reduce, partition, Lagrangian steps and Benders rounds in turn."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define, evolve, field

from privopt.arrays import Floats
from privopt.decompose import Benders, Improvement, Partition, Start, make_partition
from privopt.errors import RegistryError, SolverError, StoppedError
from privopt.interfaces import Decomposed, Decomposer, SolveContext
from privopt.registry import registry
from privopt_bd_mdp.lagrangian import PIVOTS, Lagrangian
from privopt_bd_mdp.model import PMO, PathRows
from privopt_bd_mdp.partitioners import Records, partition
from privopt_bd_mdp.problem import Decomposition
from privopt_bd_mdp.room import NoRoomError, mixing_bytes, rounds_bytes, steps_bytes, too_much
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.instance import Instance, Solution
from privopt_metric_dp.solvers.interior_point import interior_point_bytes, solve_interior_point

__all__ = ["OWN", "decompose", "partition_of"]


OWN: Final = "benders"
"""The cross decomposition of this module; every other method is a registered decomposer's name."""

WINDOW: Final = 5
SHRINK: Final = 0.9
"""Lagrangian steps go on while so many of them leave at most this share of the gap."""

HALF: Final = 0.5
"""Where a step leaves more than this share of the gap the interior point takes over, memory allowing."""


def partition_of(instance: Instance, options: Decomposition, subsets: int) -> Partition:
    """Partition of the records of a connected instance; one end of each crossing pair is its boundary."""
    records = Records(
        edges=instance.pairs, lengths=instance.distances, count=instance.records, coordinates=instance.coordinates
    )
    return make_partition(partition(options.partition, records, subsets), instance.pairs)


def decompose(instance: Instance, options: Decomposition, context: SolveContext) -> Solution:
    """Solve an instance to ``context.gap``.

    Records at distance 0 are merged, implied pairs dropped, components solved one by one (Property 3.1).

    Returns:
        The answer; its details hold ``parts``, figures of each connected part that had to be decomposed, and
        ``trajectories``, (seconds, lower, upper) of each of them.

    Raises:
        NoRoomError: not even the first steps fit into memory.
        StoppedError: stopped with nothing feasible.
        SolverError: a solver failed.
    """
    parts: list[dict[str, Any]] = []
    trajectories: list[tuple[tuple[float, float, float], ...]] = []
    left = instance.records

    def part(small: Instance) -> Solution:
        nonlocal left
        share = max(1, round(options.subsets * small.records / instance.records))
        folder = None if context.checkpoint is None else context.checkpoint / f"part-{len(parts)}"
        deadline = context.deadline
        if deadline is not None:  # each part has its share of the time, so that none goes without a bound
            now = time.monotonic()
            deadline = now + (deadline - now) * min(1.0, small.records / max(left, 1))
        left -= small.records
        solution = _Part(small, options, share, evolve(context, deadline=deadline), folder).solve()
        parts.append(dict(solution.details))
        trajectories.append(tuple(solution.trajectory))
        return solution

    whole = solve_by_component(instance, part, context.gap, deadline=context.deadline)
    return evolve(whole, details={"parts": tuple(parts), "trajectories": tuple(trajectories)})


@define(eq=False)
class _Part:
    """One connected instance."""

    instance: Instance
    options: Decomposition
    subsets: int
    context: SolveContext
    folder: Path | None
    trajectory: list[tuple[float, float, float]] = field(factory=list)
    began: float = field(factory=time.monotonic)
    lagrangian: Lagrangian | None = None
    inner: Solution | None = None
    failed: dict[str, str] = field(factory=dict)
    left_out: dict[str, str] = field(factory=dict)
    pmo: PMO | None = None

    def solve(self) -> Solution:
        """Lagrangian steps, then the interior point: they need no partition; then Benders with steps between rounds."""
        partition = partition_of(self.instance, self.options, self.subsets)
        if self.context.method != OWN:
            return self.by_decomposer(partition)
        if not self.context.fits(steps_bytes(self.instance)):
            raise NoRoomError(too_much(OWN, steps_bytes(self.instance), self.context))
        try:
            star = self.options.start == "star"
            context = self.context
            self.lagrangian = Lagrangian.begin(self.instance, star=star, gap=context.gap, deadline=context.deadline)
            self.note(0)
            self.begin(self.lagrangian)
        except KeyboardInterrupt:
            if self.lagrangian is None:
                raise
            return self.by_lagrangian(self.lagrangian, partition, "stopped")
        if self.lagrangian.gap <= self.context.gap:
            return self.by_lagrangian(self.lagrangian, partition, "optimal")
        if self.context.remaining == 0.0 or (self.inner is not None and self.inner.status == "stopped"):
            return self.by_lagrangian(self.lagrangian, partition, "stopped")
        needed = rounds_bytes(self.instance, partition)
        if not self.context.fits(needed):
            self.leave_out("rounds", needed)
            return self.by_lagrangian(self.lagrangian, partition, "feasible")
        return self.by_benders(self.lagrangian, partition)

    def leave_out(self, name: str, needed: float) -> None:
        """Tell of a part for which there is no memory."""
        self.left_out.setdefault(name, too_much(name, needed, self.context))

    def note(self, rounds: int) -> None:
        """Tell of the Lagrangian half."""
        found = self.lagrangian
        if found is not None:
            self.trajectory.append((time.monotonic() - self.began, found.lower, found.upper))
            lower = found.lower if np.isfinite(found.lower) else None
            self.context.report("lagrangian steps", rounds + found.steps, lower, found.upper)

    def begin(self, found: Lagrangian) -> None:
        """Steps from a star that is a mechanism while they help, and the interior point where the gap stays.

        Where the star is none its rays mix badly and slowly (112 of 114 s for 1,000 road nodes): no step is tried.
        """
        wanted = self.options.lagrangian_steps
        inner = wanted > 0 and self.options.interior_point
        if inner and not self.context.fits(interior_point_bytes(self.instance)):
            self.leave_out("interior-point", interior_point_bytes(self.instance))
            inner = False
        if not inner:
            found.pivots = PIVOTS
            self.steps(found)
            return
        for _ in range(wanted if found.starred else 0):
            gap = found.gap
            if not self.steps(found, 1) or found.gap > HALF * gap:
                break
        found.pivots = PIVOTS
        if found.gap > self.context.gap and self.context.remaining != 0.0:
            self.interior(found)

    def interior(self, found: Lagrangian) -> None:
        """The interior point's mechanism and multipliers, for Benders to begin with."""

        def progress(phase: str, iteration: int, lower: float | None, upper: float | None) -> None:
            low = found.lower if lower is None else max(lower, found.lower)
            high = found.upper if upper is None else min(upper, found.upper)
            self.trajectory.append((time.monotonic() - self.began, low, high))
            self.context.report(phase, iteration, low, high)

        context = self.context
        try:
            self.inner = solve_interior_point(
                self.instance, gap=context.gap, deadline=context.deadline, progress=progress
            )
        except (SolverError, np.linalg.LinAlgError) as error:  # Benders goes on from what is known without it
            self.failed["interior_point_failed"] = str(error)
            return
        found.adopt(self.inner)
        self.note(0)

    def steps(self, found: Lagrangian, most: int | None = None) -> bool:
        """Steps, at most so many, or as many as asked for, and until the deadline. Whether more might help."""
        needed = 0.0 if found.mixture.begun else mixing_bytes(len(found.mixture.rays), self.instance.records)
        if not self.context.fits(needed):
            self.leave_out("steps", needed)
            return False
        gaps = [found.gap]
        for _ in range(self.options.lagrangian_steps if most is None else most):
            if found.gap <= self.context.gap:
                return False
            try:
                if not found.step():
                    return False
            except StoppedError:  # the caller looks at the clock itself
                return False
            self.note(0)
            gaps.append(found.gap)
            if len(gaps) > 2 * WINDOW and gaps[-1] > SHRINK * gaps[-1 - WINDOW]:
                return False
        return True

    def improvement(self, duals: Floats | None, x: Floats | None) -> Improvement | None:
        """Steps from Benders' own prices on; what they found as a point and multipliers of the whole form."""
        found, pmo = self.lagrangian, self.pmo
        assert found is not None
        assert pmo is not None
        if duals is not None:
            with suppress(StoppedError):  # as in the steps
                found.price(pmo.prices(duals))
        self.steps(found)
        if not np.isfinite(found.lower):
            return Improvement(x=found.z.ravel())
        return Improvement(x=found.z.ravel(), multipliers=[pmo.vector(found.proof())])

    def by_lagrangian(self, found: Lagrangian, partition: Partition, status: str) -> Solution:
        """The answer where no Benders round was needed, or none possible."""
        return Solution(
            z=found.z,
            objective=found.upper,
            lower_bound=found.lower,
            multipliers=found.proof(),
            method="benders",
            iterations=0,
            trajectory=tuple(self.trajectory),
            status=status,
            details=self.details(partition, {"rounds": 0}),
        )

    def by_benders(self, found: Lagrangian, partition: Partition) -> Solution:
        """Benders rounds, with Lagrangian steps between them where these are wanted."""
        self.pmo = pmo = PMO.of(self.instance)
        blocks = [pmo.columns(members) for members in partition.members()]
        start = Start(x=found.z.ravel(), multipliers=[pmo.vector(found.proof())] if np.isfinite(found.lower) else [])
        if self.options.start == "cold":
            start = Start(x=found.z.ravel())
        context = evolve(self.context, checkpoint=self.folder, progress=self.context.progress)
        wanted = self.options.lagrangian_steps > 0
        try:
            result = Benders(solver=self.context.solver, stabilise=self.options.stabilise).solve(
                pmo.form,
                blocks,
                context,
                start=start,
                valid=PathRows(pmo, partition),
                improve=self.improvement if wanted else None,
            )
        except (KeyboardInterrupt, StoppedError):
            return self.by_lagrangian(found, partition, "stopped")
        except SolverError as error:  # numbers that no solver can take: what is known already stands, with its bound
            solution = self.by_lagrangian(found, partition, "feasible")
            return evolve(solution, details={**solution.details, "benders_failed": str(error)})
        solution = self.solution(pmo, result, partition)
        if found.lower <= solution.lower_bound:
            return solution
        # a proof evaluated on the whole form may lose a little, or a lot at large eps d
        return evolve(solution, lower_bound=found.lower, multipliers=found.proof())

    def by_decomposer(self, partition: Partition) -> Solution:
        """The answer of the registered decomposer that the method names.

        Raises:
            RegistryError: it returned something else than a decomposition's answer.
        """
        name = self.context.method
        decomposer: Decomposer = registry().kind("decomposer", name).load()()
        pmo = PMO.of(self.instance)
        blocks = [pmo.columns(members) for members in partition.members()]
        result = decomposer.solve(pmo.form, blocks, evolve(self.context, checkpoint=self.folder))
        if not isinstance(result, Decomposed):
            raise RegistryError(f"decomposer {name}: solve() returned {type(result).__name__}, wanted Decomposed")
        return self.solution(pmo, result, partition)

    def solution(self, pmo: PMO, result: Decomposed, partition: Partition) -> Solution:
        """A decomposition's answer as the instance's."""
        z = pmo.matrix(result.x)
        offset = time.monotonic() - self.began - (result.trajectory[-1][0] if result.trajectory else 0.0)
        self.trajectory += [(offset + t, low, high) for t, low, high in result.trajectory]
        return Solution(
            z=z,
            objective=self.instance.loss(z),
            lower_bound=-np.inf if result.bound is None else result.bound,
            multipliers=None if result.duals is None else pmo.multipliers(result.duals),
            method=self.context.method,
            iterations=result.rounds,
            trajectory=tuple(self.trajectory),
            status=result.status,
            details=self.details(partition, {"rounds": result.rounds, **result.details}),
        )

    def details(self, partition: Partition, more: dict[str, Any]) -> dict[str, Any]:
        """Figures of this part."""
        steps = 0 if self.lagrangian is None else self.lagrangian.steps
        return {
            "records": self.instance.records,
            "pairs": len(self.instance.pairs),
            "subsets": int(partition.subset.max()) + 1,
            "boundary": int(partition.boundary.sum()),
            "boundary_both_sides": partition.ends,
            "pairs_between_subsets": partition.crossing,
            "blocks": len(partition.sizes),
            "largest_block": int(partition.sizes.max(initial=0)),
            "block_sizes": partition.sizes.tolist(),
            "block_boundaries": partition.touching(self.instance.pairs).tolist(),
            "lagrangian_steps": steps,
            "interior_point_iterations": 0 if self.inner is None else self.inner.iterations,
            **self.failed,
            **({"left_out": list(self.left_out.values())} if self.left_out else {}),
            **more,
        }
