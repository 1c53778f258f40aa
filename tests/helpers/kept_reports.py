"""Walks along streets with stays, and what reports along them lose: predicted ones beside independent ones."""

from fractions import Fraction
from pathlib import Path

import numpy as np
from attrs import frozen
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import privopt
from privopt.numbers.sampling import draw_each, seeded
from privopt_metric_dp.traces.draw_trace import Limit, State


@frozen(kw_only=True, eq=False)
class Walks:
    """Rows of all subjects, each one's together and in the order of time.

    Attributes:
        nodes: (B,) of the street graph.
        subjects: (B,).
        staying: (B,) whether the row is part of a stay.
    """

    nodes: np.ndarray
    subjects: np.ndarray
    staying: np.ndarray


def walks(streets, subjects, stays, reports, apart_km, chance):
    """Stays of some reports at random nodes, and shortest ways between them with a report every so often.

    Args:
        streets: CSR matrix of lengths, km.
        subjects, stays, reports: how many; reports of each stay.
        apart_km: length of way between two reports.
        chance: a generator.
    """
    nodes, who, staying = [], [], []
    for subject in range(subjects):
        here = int(chance.integers(streets.shape[0]))
        for stay in range(stays):
            if stay:
                there = int(chance.integers(streets.shape[0]))
                way = _way(streets, here, there, apart_km)
                nodes += way
                staying += [False] * len(way)
                who += [subject] * len(way)
                here = there
            nodes += [here] * reports
            staying += [True] * reports
            who += [subject] * reports
    return Walks(nodes=np.array(nodes), subjects=np.array(who), staying=np.array(staying))


def _way(streets, here, there, apart_km):
    far, before = dijkstra(streets, directed=False, indices=here, return_predecessors=True)
    nodes, at = [], there
    while at != here:
        at = int(before[at])
        nodes.append(at)
    nodes.reverse()
    steps = (far[nodes] // apart_km).astype(int) if nodes else np.zeros(0, dtype=int)
    return [node for node, more in zip(nodes, np.diff(steps, prepend=0), strict=True) if more]


@frozen(kw_only=True)
class Compared:
    """Mean losses over stays and over all rows, in the unit of distance, at the same total for each subject.

    Attributes:
        total: epsilon that prediction spent of a subject, mean; what its independent reports may spend together.
        fresh: share of reports that prediction drew.
        predicted: losses of stays, of all rows.
        even: of independent reports, all at the same epsilon.
        independent: of the best independent ones: every k-th at k times that epsilon, else the same output for all.
        held: of the best where those between repeat the last one instead.
        best: k of either.
        constant: loss of one output for all.
    """

    total: float
    fresh: float
    predicted: tuple[float, float]
    even: tuple[float, float]
    independent: tuple[float, float]
    held: tuple[float, float]
    best: tuple[int, int]
    constant: float


def compared(folder, text, records, walk, seed=3, every=(1, 2, 5, 10, 20), **options):
    """Prediction beside the optimal mechanism for independent reports, in whichever way these lose least in stays.

    Args:
        folder: where the problem file goes, with what it names.
        text: problem file of ``predictive`` up to ``[privacy]``; ``{epsilon}`` and ``[predictive]`` keys are in it.
        records: (nodes,) number of the record that each node of the streets is reported as.
        walk: the rows.
        seed: of the draws.
        every: the k that are tried for independent reports.
        options: of :func:`privopt.solve`.
    """
    problem = Path(folder) / "problem.toml"
    problem.write_text(text)
    opened = privopt.solve("predictive", problem, **options).opened
    data, walker, rows = opened.problem.data, opened.release.walker, records[walk.nodes]
    limit = Limit(None)
    found = walker.walk(rows, walk.subjects, State(), charge=limit, source=seeded(seed))
    total = sum(limit.spent.values(), Fraction(0))
    cost = data.to_outputs
    constant = int((data.prior @ cost).argmin())

    def losses(outputs):
        lost = cost[rows, outputs]
        return float(lost[walk.staying].mean()), float(lost.mean())

    spaced, held = {}, {}
    begins = np.searchsorted(walk.subjects, walk.subjects)
    for k in every:
        drawn = (np.arange(len(rows)) - begins) % k == 0
        each = Fraction(int(total / int(drawn.sum()) * 10**6), 10**6)
        plain = text.split("[predictive]")[0].replace(
            f"epsilon = {float(walker.terms.report):g}\n", f"epsilon = {float(each)}\n"
        )
        assert f"epsilon = {float(each)}" in plain
        problem.write_text(plain)
        alone = privopt.solve("optimal-lp", problem, **options).opened.release
        outputs = np.full(len(rows), constant)
        outputs[drawn] = draw_each(alone.weights, rows[drawn], source=seeded(seed + 1))
        spaced[k], held[k] = losses(outputs), losses(outputs[np.flatnonzero(drawn)[np.cumsum(drawn) - 1]])
    best = min(spaced, key=spaced.get), min(held, key=held.get)
    return Compared(
        total=float(total) / len(limit.spent),
        fresh=float((~found.kept).mean()),
        predicted=losses(found.outputs),
        even=spaced[1],
        independent=spaced[best[0]],
        held=held[best[1]],
        best=best,
        constant=float((data.prior @ cost).min()),
    )


def grid_streets(side, km):
    """Streets of a square town: nodes row by row, every two neighbours joined."""
    ends = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    ends += [(r * side + c, (r + 1) * side + c) for r in range(side - 1) for c in range(side)]
    tails, heads = np.array(ends).T
    return csr_array((np.full(len(ends), km), (tails, heads)), shape=(side**2, side**2)), ends
