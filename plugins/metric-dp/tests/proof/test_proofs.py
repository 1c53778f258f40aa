"""proof.npz: what solve writes, verify evaluates; what is changed in it proves nothing that is not so."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.mended_sums import mend
from helpers.whole_program import optimum
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.checker import check
from privopt.errors import InputError
from privopt.execution.clock import limit
from privopt.numbers.stated_rounding import choose_unit, stated_above, stated_below
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, verify
from privopt.search.incumbent import Incumbent
from privopt_metric_dp.mechanisms.certifier import instance_view
from privopt_metric_dp.proof import Rows, prove, read_proof
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.auto import search
from privopt_metric_dp.solvers.instance import Instance

FORMS = {
    "grid": '[records]\ngrid = { rows = 3, cols = 4, cell_km = 0.7 }\n[distance]\nkind = "euclidean"\n',
    "sphere": "[records]\ngrid = { rows = 3, cols = 3, cell_km = 0.7, south_west = [41.8, 12.4] }\n"
    '[distance]\nkind = "haversine"\n',
    "roads": '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n',
    "matrix": '[records]\ncount = 7\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n',
    "vectors": '[records]\nvectors = "v.npy"\n[distance]\nkind = "euclidean"\n',
}
LOSSES = {"distance": '[utility]\nkind = "distance"\n', "travel-cost": '[utility]\nkind = "travel-cost"\n'}


def problem(folder: Path, seed: int, form: str, loss: str, epsilon: str, within: float | None) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    (folder / "points.csv").write_text("id\n" + "".join(f"n{i}\n" for i in range(0, 9, 1 + seed % 2)))
    roads = [(i, int(rng.integers(0, i))) for i in range(1, 9)] + [tuple(rng.choice(9, 2, replace=False))]
    rows = "".join(f"n{a},n{b},{rng.uniform(0.1, 2):.3f}\n" for a, b in roads)
    (folder / "roads.csv").write_text("from,to,km\n" + rows)
    points = rng.random((7, 3)).round(3)
    np.save(folder / "v.npy", points)
    np.save(folder / "d.npy", np.linalg.norm(points[:, None] - points[None], axis=2))
    near = "" if within is None else f"neighbours_within = {within}\n"
    text = FORMS[form] + f"[privacy]\nepsilon = {epsilon}\n{near}" + LOSSES[loss]
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def solved(tmp: Path, *form: object, method: str | None = None) -> Path:
    options = Options(solver="highs", method=method)
    return solve("optimal-lp", problem(tmp / "in", *form), tmp / "out", options).folder


def result_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@given(
    seed=st.integers(0, 2**20),
    form=st.sampled_from(sorted(FORMS)),
    loss=st.sampled_from(sorted(LOSSES)),
    epsilon=st.sampled_from(["0.5", "1.0", "3.3", "8"]),
    within=st.sampled_from([None, None, 4.5]),
)
@settings(max_examples=10)
def test_the_bound_is_the_one_that_the_stored_proof_gives(tmp_path_factory, seed, form, loss, epsilon, within):
    folder = solved(tmp_path_factory.mktemp("form"), seed, form, loss, epsilon, within)
    opened, objective = load_release(folder), result_of(folder)["objective"]
    data = opened.problem.data
    proof = read_proof(folder, data.shape)
    proved = proof.stated_bound(data, data.weighted)
    assert objective["lower_bound"] == proved <= min(objective["value"], proof.bound(data, data.weighted))
    assert objective["gap"] <= 1e-6
    assert opened.mechanism.proved(opened.problem, opened.release, opened.result, folder) == proved
    assert verify(folder).complaints == ()


def exact_optimum(data) -> float:
    """Return the least loss of a mechanism that keeps the exact distances."""
    exponents = float(data.epsilon) * data.metric.upper_distances(data.distances)
    return optimum(data.weighted, data.pairs, exponents, even=True)


class Stating:
    """Proves what multipliers state."""

    def __init__(self, data, value):
        self.data, self.value = data, value

    def prove(self, dual, _value):
        weighted = self.data.weighted
        return prove(dual.multipliers, self.data, weighted, self.value, over=dual.over, gap=1e-9, memory_limit=np.inf)[
            ::-1
        ]


@pytest.mark.parametrize("many", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_no_proof_proves_more_than_the_optimum(tmp_path, many):
    rng, found = np.random.default_rng(many), 0
    forms = [(form, loss) for form in sorted(FORMS) for loss in sorted(LOSSES)]
    for number in range(many):
        form, loss = forms[number % len(forms)]
        epsilon, within = str(rng.choice(["0.3", "1", "2.5", "6"])), rng.choice([None, None, 4.5])
        folder = solved(tmp_path / str(number), int(rng.integers(2**20)), form, loss, epsilon, within)
        opened = load_release(folder)
        data, objective = opened.problem.data, result_of(folder)["objective"]
        best = exact_optimum(data)
        assert objective["lower_bound"] <= best * (1 + 1e-9) + 1e-12
        assert objective["lower_bound"] >= best * (1 - 2e-6) - 1e-9
        nearby = Incumbent(Stating(data, objective["value"]), 1e-9)
        with limit(1e6):  # no method: one output for all, and bounds of trees
            search(Instance.of(data), instance_view(data, nearby), lambda: np.inf, lambda *_: iter(()))
        while nearby.prove():
            pass
        bound, proof, _ = nearby.best_proved
        if proof is not None:
            assert bound <= min(best * (1 + 1e-9) + 1e-12, proof.bound(data, data.weighted))
        found += bound > 0.0
    assert found >= many // 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One whose multipliers are stored row by row: an interior point's make no trees."""
    form = 5, "grid", "distance", "1.5", 1.0
    return solved(tmp_path_factory.mktemp("one"), *form, method="interior-point")


def forged(folder: Path, tmp: Path, change) -> Path:
    copy = shutil.copytree(folder, tmp / "forged")
    change(copy)
    return mend(copy)


def rewritten(**parts):
    def change(copy: Path) -> None:
        with np.load(copy / "proof.npz") as archive:
            arrays = dict(archive)
        arrays |= {name: make(arrays) if callable(make) else make for name, make in parts.items()}
        np.savez(copy / "proof.npz", **{name: array for name, array in arrays.items() if array is not None})

    return change


@pytest.mark.parametrize(
    "part",
    [
        {"version": np.array([1])},
        {"unit": np.array([1e-9, 1e-9])},
        {"values": lambda p: p["values"].astype(np.float16)},
        {"pairs": lambda p: p["pairs"][::-1]},
        {"starts": lambda p: p["starts"] + 1},
        {"rows": lambda p: p["rows"][::-1]},
        {"rows": lambda p: p["rows"].astype(np.int64)},
    ],
)
def test_a_proof_of_another_form_is_refused(folder, tmp_path, part):
    """What the corpus of forgeries does not change."""
    with pytest.raises(InputError, match=r"proof\.npz"):
        verify(forged(folder, tmp_path, rewritten(**part)))


def test_rows_of_pairs_that_are_not_required_stand_at_their_path(folder):
    """One row up, two columns to the right: the way over the record between, not the straight one."""
    data = load_release(folder).problem.data
    assert data.within == 1.0
    ends = np.array([[0, 6]], dtype=np.int64)
    starts = np.repeat([0, 1], [7, data.shape[1] - 6])  # at the seventh output, which costs record 6 nothing
    one = Rows(pairs=ends, starts=starts, rows=np.zeros(1, np.uint32), values=np.array([1e-3]))
    assert -one.bound(data, data.weighted) / 1e-3 == pytest.approx(np.exp(1.5 * 0.7 * (1 + 2**0.5)), rel=1e-9)


@pytest.mark.parametrize("beside", [-1, 1])
def test_a_bound_is_taken_to_the_last_bit(folder, tmp_path, beside):
    """With the gap to fit: nothing else is wrong."""

    def change(copy: Path) -> None:
        result = result_of(copy)
        value = result["objective"]["value"]
        bound = float(np.nextafter(result["objective"]["lower_bound"], beside * np.inf))
        result["objective"].update(lower_bound=bound, gap=(value - bound) / value)
        (copy / "result.json").write_text(json.dumps(result))

    copy = forged(folder, tmp_path, change)
    assert any("is proved" in line for line in verify(copy).complaints)
    assert check(copy, str) == 1


@given(st.floats(-1e3, 1e3), st.floats(1e-18, 1e6))
def test_what_is_stated_is_beside_what_is_so_by_little(number, unit):
    below, above = stated_below(number, unit), stated_above(number, unit)
    assert below <= number <= above
    for found in (below, above):
        assert abs(Fraction(number) - Fraction(found)) <= Fraction(unit) + Fraction(2.0**-52 * abs(found))


@given(st.floats(-1e3, 1e3), st.floats(0, 1e-9))
def test_numbers_between_two_ends_are_stated_alike(low, wide):
    """And so they are a little beyond: other programs have errors too."""
    high = low + wide
    unit = choose_unit(low, high)
    room = max(wide, 2.0**-48 * abs(low)) / 8
    assert stated_below(low, unit) == stated_below(high, unit) == stated_below(high + room, unit)
    assert stated_below(low, unit) == stated_below(low - room, unit)
    assert unit >= 2.0**-48 * abs(low)


def test_where_there_is_no_room_fewer_multipliers_prove_less(folder, monkeypatch):
    opened = load_release(folder)
    data, value = opened.problem.data, result_of(folder)["objective"]["value"]
    proof = read_proof(folder, data.shape)
    forward, backward = np.zeros((2, len(data.pairs), data.shape[1]))
    number = {(int(i), int(j)): p for p, (i, j) in enumerate(data.pairs)}
    for k in range(data.shape[1]):
        for m in range(proof.starts[k], proof.starts[k + 1]):
            i, j = proof.pairs[proof.rows[m]].tolist()
            side, at = (forward, (i, j)) if i < j else (backward, (j, i))
            side[number[at], k] = proof.values[m]
    multipliers = Multipliers.whole(forward, backward)
    monkeypatch.setattr("privopt_metric_dp.proof.make_proof.MANY_MULTIPLIERS", 20)
    whole, bound = prove(multipliers, data, data.weighted, value, over=None, gap=1e-6, memory_limit=np.inf)
    assert bound == pytest.approx(result_of(folder)["objective"]["lower_bound"], rel=1e-6)
    few, less = prove(multipliers, data, data.weighted, value, over=None, gap=1e-6, memory_limit=48.0 * 60)
    assert len(whole.values) > 60
    assert len(getattr(few, "values", ())) <= 60  # what is left may make trees, which take less
    assert 0.0 <= less < bound
