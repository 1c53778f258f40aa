"""Outputs chosen among the records: what is chosen, what its bound speaks of, and what tampering comes to."""

import json
import shutil

import numpy as np
import pytest
from helpers.chosen_outputs import CHOOSE, GRID, PLANE, REST, ROADS, STREETS, data_of, write_streets
from helpers.command import run
from helpers.grids import first_alone
from helpers.mended_sums import edit, rewrite

from privopt import checker
from privopt.errors import InputError, StoppedError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.mechanisms import optimal_lp
from privopt_metric_dp.solvers.choose_outputs import choose_outputs, sample_program
from privopt_metric_dp.space.pairs import farthest


@pytest.fixture(scope="module", params=["grid", "streets", "everywhere"])
def chosen_folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    text = GRID + CHOOSE + PLANE + REST if request.param == "grid" else STREETS + CHOOSE + ROADS + REST
    if request.param == "everywhere":
        text = text.replace("epsilon = 0.8\n", "epsilon = 0.8\neverywhere = true\nsplit_km = 3.0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimal_lp, "PRICED_PER_OUTPUT", 0)  # bounds over all streets: test_street_bound.py
        solve("optimal-lp", write_streets(folder, text), folder / "out", Options(gap=1e-3))
    return folder / "out"


def test_chooses_records_and_states_the_bound(chosen_folder):
    result = json.loads((chosen_folder / "result.json").read_text())
    assert result["objective"]["bound_over"] == "chosen"
    assert result["objective"]["gap"] <= 1e-3
    assert result["status"] == "feasible"
    with np.load(chosen_folder / "mechanism.npz") as archive:
        outputs, records = archive["outputs"].tolist(), archive["records"].tolist()
    assert len(set(outputs)) == 9
    assert [name for name in records if name in outputs] == outputs
    assert verify(chosen_folder).verdict == "proved"
    lines = []
    assert checker.check(chosen_folder, lines.append) == 0, lines


@pytest.mark.parametrize("stated_scope", ["all", None])
def test_refuses_bound_beyond_chosen_outputs(chosen_folder, tmp_path, stated_scope):
    def claim(result):
        result["objective"].pop("bound_over")
        result["objective"] |= {} if stated_scope is None else {"bound_over": stated_scope}
        result["status"] = "optimal"

    folder = edit(shutil.copytree(chosen_folder, tmp_path / "dir"), claim)
    assert verify(folder).verdict is None
    assert checker.check(folder, [].append) in (1, 2)


def test_refuses_other_outputs(chosen_folder, tmp_path):
    with np.load(chosen_folder / "mechanism.npz") as archive:
        outputs, records = archive["outputs"], archive["records"].tolist()
    unused_name = next(name for name in records if name not in outputs.tolist())
    number_by_name = {name: number for number, name in enumerate(records)}
    swapped = np.array(
        sorted([*outputs[1:].tolist(), unused_name], key=number_by_name.__getitem__), dtype=outputs.dtype
    )
    for number, changed_outputs in enumerate((swapped, outputs[::-1].copy(), np.repeat(outputs[:1], 9))):
        folder = rewrite(shutil.copytree(chosen_folder, tmp_path / f"{number}"), outputs=changed_outputs)
        assert not verify(folder).holds
        assert checker.check(folder, [].append) == 1


@pytest.mark.parametrize(
    ("mechanism", "text", "keywords"),
    [
        ("optimal-lp", GRID + "[outputs]\nchoose = 43\n" + PLANE + REST, "outputs.choose"),
        ("optimal-lp", GRID + "[outputs]\nchoose = 0\n" + PLANE + REST, "outputs.choose"),
        ("optimal-lp", "[records]\nchoose = 9\n" + PLANE + REST, "records"),
        ("exponential", GRID + CHOOSE + PLANE + REST, "outputs.choose"),
        ("optimal-lp", GRID + CHOOSE + PLANE + REST.replace('"distance"', '"matrix"\ncost = "c.npy"'), "utility.kind"),
    ],
)
def test_refuses_what_cannot_be_chosen(tmp_path, mechanism, text, keywords):
    np.save(tmp_path / "c.npy", np.ones((42, 42)))
    with pytest.raises(InputError, match=keywords):
        solve(mechanism, write_streets(tmp_path, text), tmp_path / "out")


@first_alone("text", [STREETS + CHOOSE + ROADS + REST, GRID + CHOOSE + PLANE + REST])
def test_chosen_outputs_beat_distant_ones(tmp_path, text):
    from privopt_metric_dp.solvers.auto import solve as solved
    from privopt_metric_dp.solvers.instance import Instance

    data = data_of(tmp_path, text)
    best, distant_loss = (
        solved(Instance.of(data.over(rows))).objective for rows in (choose_outputs(data), farthest(data.metric, 9))
    )
    assert solved(Instance.of(data)).lower_bound <= best < distant_loss


def test_takes_distant_outputs_if_most_are_tried(tmp_path, monkeypatch):
    data = data_of(tmp_path, GRID + CHOOSE + PLANE + REST)
    monkeypatch.setattr("privopt_metric_dp.solvers.choose_outputs.CANDIDATES", (4, 9, 17))
    monkeypatch.delattr("privopt_metric_dp.solvers.choose_outputs.solve")
    chosen = choose_outputs(data)
    assert len(set(chosen.tolist())) == 9
    assert (np.diff(chosen) > 0).all()
    distances = data.metric.between(np.repeat(chosen, 9), np.tile(chosen, 9)).reshape(9, 9)
    assert distances[~np.eye(9, dtype=bool)].min() >= 2.0


def test_sample_of_all_is_the_problem(tmp_path):
    data = data_of(tmp_path, STREETS + CHOOSE + ROADS + REST)
    pairs, lengths = data.needed
    instance, prior = sample_program(data.weighted, data.prior, pairs, lengths, np.arange(len(data.records)), 0.8)
    assert np.array_equal(prior, data.prior)
    assert np.array_equal(instance.cost, data.weighted)
    assert np.array_equal(instance.pairs, pairs)
    assert np.array_equal(instance.distances, lengths)


def test_sample_keeps_the_prior(tmp_path):
    data = data_of(tmp_path, STREETS + CHOOSE + ROADS + REST)
    seeds = np.array([30, 2, 11, 17])
    instance, prior = sample_program(data.weighted, data.prior, *data.needed, seeds, 0.8)
    assert prior.sum() == pytest.approx(1.0)
    assert instance.cost.sum(axis=0) == pytest.approx(data.weighted.sum(axis=0))
    i, j = instance.pairs.T
    assert (instance.distances >= data.metric.between(seeds[i], seeds[j]) * (1 - 1e-12)).all()


def test_proposes_few_outputs_if_memory_is_short(tmp_path):
    problem = write_streets(tmp_path, GRID.replace("rows = 6, cols = 7", "rows = 250, cols = 4") + PLANE + REST)
    with pytest.raises(StoppedError, match=r"\[outputs\] choose = 120.*1,000"):
        solve("optimal-lp", problem, tmp_path / "out", Options(memory=0.3))


def test_curve_chooses_outputs_at_each_epsilon(tmp_path):
    """They were chosen and solved for at the problem file's own epsilon, and not certified at others."""
    problem, table = write_streets(tmp_path, GRID + CHOOSE + PLANE + REST), tmp_path / "curve.csv"
    options = ["--mechanisms", "optimal-lp", "--epsilon", "0.4:0.9:2", "--out", str(table)]
    completed = run("curve", str(problem), *options)
    assert completed.exit_code == 0, completed.output
    losses = [float(row.split(",")[2]) for row in table.read_text().splitlines()[1:]]
    assert losses[0] > losses[1] > 0
