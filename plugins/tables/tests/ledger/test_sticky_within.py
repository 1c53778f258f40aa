"""`apply --sticky --sticky-within KM`: kept reports near their cell's centre, against the noise of GPS (T3)."""

import json
from collections import Counter
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.charging import charged, said
from helpers.toys import grid_text

from privopt.errors import UsageError
from privopt.ledger.charge import Charge
from privopt.run.solve import solve
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

POSITION = Secret.of(x="x", y="y")
HALF = 0.1 * 2**-0.5  # km, half the diagonal of cells of 100 m


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """DIR of 12 x 12 cells of 100 m."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "p.toml").write_text(grid_text(12, 12, 0.1))
    return solve("exponential", folder / "p.toml", folder / "out").folder


def rows(path, who, places):
    pl.DataFrame({"who": who, "x": places[:, 0], "y": places[:, 1]}).write_csv(path)
    return path


def kept(cells, table, out, ledger, within):
    charge = Charge(ledger=ledger, subject="who", sticky=True, within=within)
    return apply(cells, table, out, POSITION, ApplyOptions(charge=charge))


def test_homes_under_noise_are_charged_about_once(cells, tmp_path):
    """Twenty homes, 1,000 starts, 15 m in each coordinate, cells of 100 m, half a diagonal and 50 m."""
    rng = np.random.default_rng(11)
    homes = rng.uniform(0.1, 1.0, (20, 2))
    who = rng.integers(0, 20, 1_000)
    places = homes[who] + rng.normal(0.0, 0.015, (1_000, 2))
    table = rows(tmp_path / "t.csv", [f"s{n}" for n in who], places)
    done = kept(cells, table, tmp_path / "o.csv", tmp_path / "near", HALF + 0.05)
    assert len(charged(tmp_path / "near")) <= 1.2 * 20
    assert "learns the cell" in done.sequence
    kept(cells, table, tmp_path / "p.csv", tmp_path / "own", None)
    assert len(charged(tmp_path / "own")) > 1.5 * 20
    parts = [rows(tmp_path / f"{n}.csv", [f"s{k}" for k in who[n::4]], places[n::4]) for n in range(4)]
    for number, part in enumerate(parts):  # the store knows what earlier tables kept
        kept(cells, part, tmp_path / f"o{number}.csv", tmp_path / "parts", HALF + 0.05)
    assert len(charged(tmp_path / "parts")) <= 1.2 * 20


def expected(places, within):
    """Whose report each row has: the earliest kept one of its own cell, or of one whose centre is near enough."""
    firsts = []
    given = []
    for row, place in enumerate(places):
        cell = np.round(place / 0.1) * 0.1
        near = [n for n, centre in firsts if np.hypot(*(place - centre)) <= within or np.allclose(centre, cell)]
        if not near:
            firsts.append((row, cell))
        given.append(min(near) if near else row)
    return given


def test_the_earliest_kept_report_near_enough_is_given(cells, tmp_path):
    rng = np.random.default_rng(5)
    places = rng.uniform(0.3, 0.62, (6, 12, 2))
    table = rows(tmp_path / "t.csv", np.repeat([f"s{n}" for n in range(6)], 12), places.reshape(-1, 2))
    kept(cells, table, tmp_path / "o.csv", tmp_path / "l", HALF + 0.02)
    charges = Counter(who for who, _ in charged(tmp_path / "l"))
    reports = pl.read_csv(tmp_path / "o.csv")["report"].to_numpy().reshape(6, 12).tolist()
    for number, own in enumerate(reports):
        given = expected(places[number], HALF + 0.02)
        assert [own[row] for row in given] == own
        assert charges[f"s{number}"] == len(set(given))


def test_traces_of_one_pattern_are_charged_alike_and_within_a_cell_nothing_is_told(cells, tmp_path):
    """All traces of three visits over a few points of a cell and of its neighbour: charges follow from cells alone."""
    points = [(0.31, 0.3), (0.29, 0.31), (0.349, 0.3), (0.351, 0.3), (0.6, 0.6)]
    traces = np.array([[*trace, points[0]] for trace in product(points, repeat=2)])
    table = rows(tmp_path / "t.csv", np.repeat([f"s{n}" for n in range(len(traces))], 3), traces.reshape(-1, 2))
    kept(cells, table, tmp_path / "o.csv", tmp_path / "l", HALF + 0.01)
    charges = Counter(who for who, _ in charged(tmp_path / "l"))
    for number, trace in enumerate(traces):
        assert charges[f"s{number}"] == len(set(expected(trace, HALF + 0.01)))


def test_what_cannot_be_meant_so(cells, tmp_path):
    table = rows(tmp_path / "t.csv", ["anna"], np.array([[0.1, 0.1]]))
    with pytest.raises(UsageError, match=r"at least half a cell's diagonal, 0\.071 km"):
        kept(cells, table, tmp_path / "o.csv", tmp_path / "l", 0.05)
    given = ["apply", cells, table, "--x", "x", "--y", "y", "--out", tmp_path / "o.csv"]
    code, _, err = said(*given, "--sticky-within", "0.2")
    assert (code, "--sticky-within must be given with --sticky" in err) == (2, True)
    more = ["--ledger", tmp_path / "l", "--subject", "who", "--sticky", "--sticky-within", "0.2", "--json"]
    code, out, err = said(*given, *more)
    assert code == 0, err
    assert "learns the cell" in json.loads(out)["sequence"]
