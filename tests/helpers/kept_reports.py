"""Walks along streets with stays, and what reports along them lose: predicted ones beside independent ones."""

from fractions import Fraction
from pathlib import Path

import numpy as np
from attrs import frozen
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import privopt
from privopt.numbers.sampling import make_source
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
    nodes, subject_numbers, staying = [], [], []
    for subject in range(subjects):
        start = int(chance.integers(streets.shape[0]))
        for stay_number in range(stays):
            if stay_number:
                end = int(chance.integers(streets.shape[0]))
                path = _path_nodes(streets, start, end, apart_km)
                nodes += path
                staying += [False] * len(path)
                subject_numbers += [subject] * len(path)
                start = end
            nodes += [start] * reports
            staying += [True] * reports
            subject_numbers += [subject] * reports
    return Walks(nodes=np.array(nodes), subjects=np.array(subject_numbers), staying=np.array(staying))


def _path_nodes(streets, start, end, apart_km):
    distances, predecessors = dijkstra(streets, directed=False, indices=start, return_predecessors=True)
    nodes, at = [], end
    while at != start:
        at = int(predecessors[at])
        nodes.append(at)
    nodes.reverse()
    steps = (distances[nodes] // apart_km).astype(int) if nodes else np.zeros(0, dtype=int)
    return [node for node, step_count in zip(nodes, np.diff(steps, prepend=0), strict=True) if step_count]


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


def compare_losses(folder, text, records, walk, seed=3, intervals=(1, 2, 5, 10, 20), **options):
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
    release = privopt.solve("predictive", problem, **options).opened
    data, walker, rows = release.problem.data, release.release.walker, records[walk.nodes]
    limit = Limit(None)
    walked = walker.walk(rows, walk.subjects, State(), charge=limit, source=make_source(seed))
    total = sum(limit.spent.values(), Fraction(0))
    cost = data.to_outputs
    constant = int((data.prior @ cost).argmin())

    def losses(outputs):
        lost = cost[rows, outputs]
        return float(lost[walk.staying].mean()), float(lost.mean())

    spaced, kept_losses = {}, {}
    begins = np.searchsorted(walk.subjects, walk.subjects)
    for k in intervals:
        is_drawn = (np.arange(len(rows)) - begins) % k == 0
        report_epsilon = Fraction(int(total / int(is_drawn.sum()) * 10**6), 10**6)
        plain_text = text.split("[predictive]")[0].replace(
            f"epsilon = {float(walker.terms.report):g}\n", f"epsilon = {float(report_epsilon)}\n"
        )
        assert f"epsilon = {float(report_epsilon)}" in plain_text
        problem.write_text(plain_text)
        independent = privopt.solve("optimal-lp", problem, **options).opened.release
        outputs = np.full(len(rows), constant)
        outputs[is_drawn] = independent.sampler.draw_each(rows[is_drawn], source=make_source(seed + 1))
        spaced[k], kept_losses[k] = losses(outputs), losses(outputs[np.flatnonzero(is_drawn)[np.cumsum(is_drawn) - 1]])
    best = min(spaced, key=spaced.get), min(kept_losses, key=kept_losses.get)
    return Compared(
        total=float(total) / len(limit.spent),
        fresh=float((~walked.kept).mean()),
        predicted=losses(walked.outputs),
        even=spaced[1],
        independent=spaced[best[0]],
        held=kept_losses[best[1]],
        best=best,
        constant=float((data.prior @ cost).min()),
    )


def grid_streets(size, km):
    """Streets of a square town: nodes row by row, every two neighbours joined."""
    street_ends = [(r * size + c, r * size + c + 1) for r in range(size) for c in range(size - 1)]
    street_ends += [(r * size + c, (r + 1) * size + c) for r in range(size - 1) for c in range(size)]
    tails, heads = np.array(street_ends).T
    return csr_array((np.full(len(street_ends), km), (tails, heads)), shape=(size**2, size**2)), street_ends
