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
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt.search.incumbent import Incumbent
from privopt_metric_dp.mechanisms.certifier import instance_view
from privopt_metric_dp.proof import Rows, prove, read_proof
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
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


def problem(folder: Path, seed: int, form: str, loss: str, epsilon: str, limit: float | None) -> Path:
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    (folder / "points.csv").write_text("id\n" + "".join(f"n{i}\n" for i in range(0, 9, 1 + seed % 2)))
    roads = [(i, int(rng.integers(0, i))) for i in range(1, 9)] + [tuple(rng.choice(9, 2, replace=False))]
    rows = "".join(f"n{a},n{b},{rng.uniform(0.1, 2):.3f}\n" for a, b in roads)
    (folder / "roads.csv").write_text("from,to,km\n" + rows)
    points = rng.random((7, 3)).round(3)
    np.save(folder / "v.npy", points)
    np.save(folder / "d.npy", np.linalg.norm(points[:, None] - points[None], axis=2))
    limit_line = "" if limit is None else f"neighbours_within = {limit}\n"
    text = FORMS[form] + f"[privacy]\nepsilon = {epsilon}\n{limit_line}" + LOSSES[loss]
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def solve_form(tmp: Path, *form: object, method: str | None = None) -> Path:
    options = Options(solver="highs", method=method)
    return solve("optimal-lp", problem(tmp / "in", *form), tmp / "out", options).folder


def result_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@given(
    seed=st.integers(0, 2**20),
    form=st.sampled_from(sorted(FORMS)),
    loss=st.sampled_from(sorted(LOSSES)),
    epsilon=st.sampled_from(["0.5", "1.0", "3.3", "8"]),
    limit=st.sampled_from([None, None, 4.5]),
)
@settings(max_examples=10)
def test_bound_follows_from_the_stored_proof(tmp_path_factory, seed, form, loss, epsilon, limit):
    folder = solve_form(tmp_path_factory.mktemp("form"), seed, form, loss, epsilon, limit)
    release, objective = load_release(folder), result_of(folder)["objective"]
    data = release.problem.data
    proof = read_proof(folder, data.shape)
    proved_bound = proof.stated_bound(data, data.weighted)
    assert objective["lower_bound"] == proved_bound <= min(objective["value"], proof.bound(data, data.weighted))
    assert objective["gap"] <= 1e-6
    assert release.mechanism.proved_bound(release.problem, release.release, release.result, folder) == proved_bound
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


@pytest.mark.parametrize("case_count", [10, pytest.param(500, marks=pytest.mark.slow)])
def test_no_proof_exceeds_the_optimum(tmp_path, case_count):
    rng, positive_count = np.random.default_rng(case_count), 0
    forms = [(form, loss) for form in sorted(FORMS) for loss in sorted(LOSSES)]
    for number in range(case_count):
        form, loss = forms[number % len(forms)]
        epsilon, near_limit = str(rng.choice(["0.3", "1", "2.5", "6"])), rng.choice([None, None, 4.5])
        folder = solve_form(tmp_path / str(number), int(rng.integers(2**20)), form, loss, epsilon, near_limit)
        release = load_release(folder)
        data, objective = release.problem.data, result_of(folder)["objective"]
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
            assert bound <= min(best * (1 + 1e-9) + 1e-12, proof.stated_bound(data, data.weighted))
        positive_count += bound > 0.0
    assert positive_count >= case_count // 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One whose multipliers are stored row by row: an interior point's make no trees."""
    form = 5, "grid", "distance", "1.5", 1.0
    return solve_form(tmp_path_factory.mktemp("one"), *form, method="interior-point")


def forge_folder(folder: Path, tmp: Path, change) -> Path:
    copy = shutil.copytree(folder, tmp / "forged")
    change(copy)
    return mend(copy)


def change_parts(**parts):
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
def test_refuses_proof_of_another_form(folder, tmp_path, part):
    """What the corpus of forgeries does not change."""
    with pytest.raises(InputError, match=r"proof\.npz"):
        verify(forge_folder(folder, tmp_path, change_parts(**part)))


def test_rows_of_unrequired_pairs_follow_their_path(folder):
    """One row up, two columns to the right: the way over the record between, not the straight one."""
    data = load_release(folder).problem.data
    assert data.within == 1.0
    pair = np.array([[0, 6]], dtype=np.int64)
    starts = np.repeat([0, 1], [7, data.shape[1] - 6])  # at the seventh output, which costs record 6 nothing
    single_row = Rows(pairs=pair, starts=starts, rows=np.zeros(1, np.uint32), values=np.array([1e-3]))
    assert -single_row.bound(data, data.weighted) / 1e-3 == pytest.approx(np.exp(1.5 * 0.7 * (1 + 2**0.5)), rel=1e-9)


@pytest.mark.parametrize("direction", [-1, 1])
def test_bound_counts_to_the_last_bit(folder, tmp_path, direction):
    """With the gap to fit: nothing else is wrong."""

    def change(copy: Path) -> None:
        result = result_of(copy)
        value = result["objective"]["value"]
        bound = float(np.nextafter(result["objective"]["lower_bound"], direction * np.inf))
        result["objective"].update(lower_bound=bound, gap=(value - bound) / value)
        (copy / "result.json").write_text(json.dumps(result))

    copy = forge_folder(folder, tmp_path, change)
    assert any("is proved" in line for line in verify(copy).complaints)
    assert check(copy, str) == 1


@given(st.floats(-1e3, 1e3), st.floats(1e-18, 1e6))
def test_stated_numbers_are_close(number, unit):
    lower, upper = stated_below(number, unit), stated_above(number, unit)
    assert lower <= number <= upper
    for stated in (lower, upper):
        assert abs(Fraction(number) - Fraction(stated)) <= Fraction(unit) + Fraction(2.0**-52 * abs(stated))


@given(st.floats(-1e3, 1e3), st.floats(0, 1e-9))
def test_near_numbers_are_stated_equally(low, width):
    """And so they are a little beyond: other programs have errors too."""
    high = low + width
    unit = choose_unit(low, high)
    tolerance = max(width, 2.0**-48 * abs(low)) / 8
    assert stated_below(low, unit) == stated_below(high, unit) == stated_below(high + tolerance, unit)
    assert stated_below(low, unit) == stated_below(low - tolerance, unit)
    assert unit >= 2.0**-48 * abs(low)


def test_fewer_multipliers_prove_less(folder, monkeypatch):
    release = load_release(folder)
    data, value = release.problem.data, result_of(folder)["objective"]["value"]
    proof = read_proof(folder, data.shape)
    forward, backward = np.zeros((2, len(data.pairs), data.shape[1]))
    number = {(int(i), int(j)): p for p, (i, j) in enumerate(data.pairs)}
    for k in range(data.shape[1]):
        for m in range(proof.starts[k], proof.starts[k + 1]):
            i, j = proof.pairs[proof.rows[m]].tolist()
            direction, pair = (forward, (i, j)) if i < j else (backward, (j, i))
            direction[number[pair], k] = proof.values[m]
    multipliers = Multipliers.from_arrays(forward, backward)
    monkeypatch.setattr("privopt_metric_dp.proof.make_proof.MANY_MULTIPLIERS", 20)
    full_proof, bound = prove(multipliers, data, data.weighted, value, over=None, gap=1e-6, memory_limit=np.inf)
    assert bound == pytest.approx(result_of(folder)["objective"]["lower_bound"], rel=1e-6)
    small_proof, small_bound = prove(
        multipliers, data, data.weighted, value, over=None, gap=1e-6, memory_limit=48.0 * 60
    )
    assert len(full_proof.values) > 60
    assert len(getattr(small_proof, "values", ())) <= 60  # what is left may make trees, which take less
    assert 0.0 <= small_bound < bound
