"""What kept reports tell, by brute force: all traces of three visits to a few points, reported by ``apply --sticky``.

The attacker knows the map, the release and all visits but one, and sees all reports. What he finds must be what the
theorem allows (docs/guide/repeated.md, "Kept reports"), and no more.
"""

from collections import Counter
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from helpers.charging import charged
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


def near(x):
    """Return the cells whose kept report a visit may have."""
    return {cell for cell in range(3) if abs(x - cell * SIDE) <= WITHIN} | {cell_of(x)}


def pattern_of(trace):
    """Which visit's report each visit has: the earliest of those that were drawn for a cell near it."""
    drawn, given = {}, []
    for visit, x in enumerate(trace):
        kept = [drawn[cell] for cell in near(x) if cell in drawn]
        given.append(min(kept) if kept else drawn.setdefault(cell_of(x), visit))
    return tuple(given)


TRACES = list(product(POINTS, repeat=3))
SIDES = [0.024, 0.026, 0.049, 0.051, 0.19]
"""Of these the points on both sides of a circle and of a border, and one far away."""


@pytest.fixture(scope="module", params=[SIDES, pytest.param(POINTS, marks=pytest.mark.slow)], ids=len)
def seen(request, tmp_path_factory):
    """Return the release, traces, and of each the reports of its copies: (T, COPIES, 3) numbers of outputs."""
    traces = list(product(request.param, repeat=3))
    folder = tmp_path_factory.mktemp("row")
    (folder / "p.toml").write_text(grid_text(1, 3, SIDE, EPSILON))
    out = solve("exponential", folder / "p.toml", folder / "out").folder
    release = open_verified(out).release
    whose = [f"s{trace}-{copy}" for trace in range(len(traces)) for copy in range(COPIES)]
    xs = np.repeat(np.array(traces), COPIES, axis=0)
    frame = pl.DataFrame({"who": whose * 3, "x": xs.T.ravel(), "y": np.zeros(xs.size)})
    frame.write_parquet(folder / "t.parquet")
    charge = Charge(ledger=folder / "book", subject="who", sticky=True, within=WITHIN)
    apply(out, folder / "t.parquet", folder / "o.parquet", Secret.of(x="x", y="y"), ApplyOptions(charge=charge))
    number = {name: place for place, name in enumerate(release.outputs.tolist())}
    reports = [number[name] for name in pl.read_parquet(folder / "o.parquet")["report"]]
    charges = Counter(subject for subject, _ in charged(folder / "book"))
    return release, traces, np.array(reports).reshape(3, len(traces), COPIES).transpose(1, 2, 0), charges


def test_which_visits_share_a_report_follows_from_cells_and_circles(seen):
    _, traces, reports, charges = seen
    for number, trace in enumerate(traces):
        given = pattern_of(trace)
        for one, two in combinations(range(3), 2):
            alike = bool((reports[number, :, one] == reports[number, :, two]).all())
            assert alike == (given[one] == given[two]), trace
        assert {charges[f"s{number}-{copy}"] for copy in range(COPIES)} == {len(set(given))}


def test_the_pattern_tells_the_cell_and_the_near_centres_and_nothing_else():
    known = list(product(POINTS, repeat=2))
    told = {
        (one, two)
        for one, two in combinations(POINTS, 2)
        if any(
            pattern_of((*visits[:at], one, *visits[at:])) != pattern_of((*visits[:at], two, *visits[at:]))
            for visits in known
            for at in range(3)
        )
    }
    differ = {
        (one, two) for one, two in combinations(POINTS, 2) if (cell_of(one), near(one)) != (cell_of(two), near(two))
    }
    assert told == differ
    assert (0.024, 0.026) in told  # of one cell: the neighbour's circle lies between them
    assert (0.049, 0.051) in told  # 2 mm apart, at a border
    assert (0.0, 0.024) not in told


def test_reports_are_of_the_first_visits_and_independent(seen):
    release, traces, reports, _ = seen
    rows = release.weights / TOTAL
    found, expected = Counter(), Counter()
    for number, trace in enumerate(traces):
        first = sorted(set(pattern_of(trace)))
        cells = tuple(cell_of(trace[visit]) for visit in first)
        found.update((cells, *outputs) for outputs in reports[number][:, first].tolist())
        for outputs in product(range(3), repeat=len(first)):
            expected[cells, *outputs] += COPIES * np.prod(rows[list(cells), list(outputs)])
    usual = [case for case, count in expected.items() if count >= 10]
    scale = sum(found[case] for case in usual) / sum(expected[case] for case in usual)
    got, wanted = [found[case] for case in usual], [expected[case] * scale for case in usual]
    assert sum(got) > 0.95 * reports[:, :, 0].size
    assert chisquare(got, wanted).pvalue > 1e-6


def test_of_traces_with_one_pattern_no_reports_tell_more_than_allowed_and_some_tell_that(seen):
    release = seen[0]
    logs = np.log(release.weights.astype(float))
    least = max(np.abs(logs[a] - logs[b]).max() / (SIDE * abs(a - b)) for a, b in combinations(range(3), 2))
    assert least <= EPSILON * (1 + 1e-9)
    of_pattern = {}
    for trace in TRACES:
        of_pattern.setdefault(pattern_of(trace), []).append(trace)
    reached = 0.0
    for given, traces in of_pattern.items():
        first = sorted(set(given))
        for one, two in combinations({tuple(cell_of(trace[visit]) for visit in first) for trace in traces}, 2):
            told = max(
                abs(sum(logs[a, k] - logs[b, k] for a, b, k in zip(one, two, outputs, strict=True)))
                for outputs in product(range(3), repeat=len(first))
            )
            apart = SIDE * sum(abs(a - b) for a, b in zip(one, two, strict=True))
            assert told <= EPSILON * apart * (1 + 1e-9)
            reached = max(reached, told / (least * apart))
    assert reached == pytest.approx(1.0)
