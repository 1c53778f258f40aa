"""What kept reports tell, by brute force: all traces of three visits to a few points, reported by ``apply --sticky``.

The attacker knows the map, the release and all visits but one, and sees all reports. What he finds must be what the
theorem allows (docs/guide/repeated.md, "Kept reports"), and no more.
"""

from collections import Counter
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from helpers.charging import read_charges
from helpers.toys import grid_text
from scipy.stats import chisquare

from privopt.ledger.charge import Charge
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

SIDE, WITHIN = 0.1, 0.075
POINTS = [0.0, 0.024, 0.026, 0.049, 0.051, 0.074, 0.1, 0.19]
"""km along a row of three cells: on both sides of a border, and of the circles around the centres."""
COPIES = 40
EPSILON = 8.0


def cell_of(x):
    return int(np.floor(x / SIDE + 0.5))


def near_cells(x):
    """Return the cells whose kept report a visit may have."""
    return {cell for cell in range(3) if abs(x - cell * SIDE) <= WITHIN} | {cell_of(x)}


def pattern_of(trace):
    """Which visit's report each visit has: the earliest of those that were drawn for a cell near it."""
    visit_by_cell, pattern = {}, []
    for visit, x in enumerate(trace):
        near_visits = [visit_by_cell[cell] for cell in near_cells(x) if cell in visit_by_cell]
        pattern.append(min(near_visits) if near_visits else visit_by_cell.setdefault(cell_of(x), visit))
    return tuple(pattern)


TRACES = list(product(POINTS, repeat=3))
SIDES = [0.024, 0.026, 0.049, 0.051, 0.19]
"""Of these the points on both sides of a circle and of a border, and one far away."""


@pytest.fixture(scope="module", params=[SIDES, pytest.param(POINTS, marks=pytest.mark.slow)], ids=len)
def sampled_traces(request, tmp_path_factory):
    """Return the release, traces, and of each the reports of its copies: (T, COPIES, 3) numbers of outputs."""
    traces = list(product(request.param, repeat=3))
    folder = tmp_path_factory.mktemp("row")
    (folder / "p.toml").write_text(grid_text(1, 3, SIDE, EPSILON))
    release_folder = solve("exponential", folder / "p.toml", folder / "out").folder
    release = open_verified(release_folder).release
    names = [f"s{trace}-{copy}" for trace in range(len(traces)) for copy in range(COPIES)]
    xs = np.repeat(np.array(traces), COPIES, axis=0)
    frame = pl.DataFrame({"who": names * 3, "x": xs.T.ravel(), "y": np.zeros(xs.size)})
    frame.write_parquet(folder / "t.parquet")
    charge = Charge(ledger=folder / "book", subject="who", sticky=True, within=WITHIN)
    apply(
        release_folder, folder / "t.parquet", folder / "o.parquet", Secret.of(x="x", y="y"), ApplyOptions(charge=charge)
    )
    number = {name: index for index, name in enumerate(release.outputs.tolist())}
    reports = [number[name] for name in pl.read_parquet(folder / "o.parquet")["report"]]
    charges = Counter(subject for subject, _ in read_charges(folder / "book"))
    return release, traces, np.array(reports).reshape(3, len(traces), COPIES).transpose(1, 2, 0), charges


def test_sharing_follows_from_cells_and_circles(sampled_traces):
    _, traces, reports, charges = sampled_traces
    for number, trace in enumerate(traces):
        pattern = pattern_of(trace)
        for first, second in combinations(range(3), 2):
            is_equal = bool((reports[number, :, first] == reports[number, :, second]).all())
            assert is_equal == (pattern[first] == pattern[second]), trace
        assert {charges[f"s{number}-{copy}"] for copy in range(COPIES)} == {len(set(pattern))}


def test_pattern_reveals_only_cell_and_near_centres():
    earlier_visits = list(product(POINTS, repeat=2))
    told_apart = {
        (first, second)
        for first, second in combinations(POINTS, 2)
        if any(
            pattern_of((*visits[:point], first, *visits[point:]))
            != pattern_of((*visits[:point], second, *visits[point:]))
            for visits in earlier_visits
            for point in range(3)
        )
    }
    differ = {
        (first, second)
        for first, second in combinations(POINTS, 2)
        if (cell_of(first), near_cells(first)) != (cell_of(second), near_cells(second))
    }
    assert told_apart == differ
    assert (0.024, 0.026) in told_apart  # of one cell: the neighbour's circle lies between them
    assert (0.049, 0.051) in told_apart  # 2 mm apart, at a border
    assert (0.0, 0.024) not in told_apart


def test_reports_are_of_first_visits(sampled_traces):
    release, traces, reports, _ = sampled_traces
    rows = release.weights / TOTAL
    observed, expected = Counter(), Counter()
    for number, trace in enumerate(traces):
        first = sorted(set(pattern_of(trace)))
        cells = tuple(cell_of(trace[visit]) for visit in first)
        observed.update((cells, *outputs) for outputs in reports[number][:, first].tolist())
        for outputs in product(range(3), repeat=len(first)):
            expected[cells, *outputs] += COPIES * np.prod(rows[list(cells), list(outputs)])
    usual = [case for case, count in expected.items() if count >= 10]
    scale = sum(observed[case] for case in usual) / sum(expected[case] for case in usual)
    observed_counts, expected_counts = [observed[case] for case in usual], [expected[case] * scale for case in usual]
    assert sum(observed_counts) > 0.95 * reports[:, :, 0].size
    assert chisquare(observed_counts, expected_counts).pvalue > 1e-6


def test_reports_reveal_at_most_the_allowed(sampled_traces):
    release = sampled_traces[0]
    logs = np.log(release.weights.astype(float))
    max_rate = max(np.abs(logs[a] - logs[b]).max() / (SIDE * abs(a - b)) for a, b in combinations(range(3), 2))
    assert max_rate <= EPSILON * (1 + 1e-9)
    of_pattern = {}
    for trace in TRACES:
        of_pattern.setdefault(pattern_of(trace), []).append(trace)
    max_ratio = 0.0
    for pattern, traces in of_pattern.items():
        first = sorted(set(pattern))
        for cells, other_cells in combinations(
            {tuple(cell_of(trace[visit]) for visit in first) for trace in traces}, 2
        ):
            log_ratio = max(
                abs(sum(logs[a, k] - logs[b, k] for a, b, k in zip(cells, other_cells, outputs, strict=True)))
                for outputs in product(range(3), repeat=len(first))
            )
            distance = SIDE * sum(abs(a - b) for a, b in zip(cells, other_cells, strict=True))
            assert log_ratio <= EPSILON * distance * (1 + 1e-9)
            max_ratio = max(max_ratio, log_ratio / (max_rate * distance))
    assert max_ratio == pytest.approx(1.0)
