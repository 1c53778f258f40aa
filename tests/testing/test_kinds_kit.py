"""The kit for kinds: privopt's own pass, planted faults are caught."""

from typing import ClassVar

import numpy as np
import pytest
from attrs import evolve

from privopt.errors import RegistryError, UsageError
from privopt.metric.kinds import LossKind
from privopt.metric.privacy import MetricDP
from privopt.metric.space.geometry import EuclideanMetric
from privopt.metric.space.kinds import Euclidean
from privopt.registry import Kind, discover, registry, using
from privopt.run.solve import solve
from privopt.specs import KindSpec
from privopt.testing import check_kind
from privopt.testing.efforts import Effort


@pytest.fixture(scope="module")
def how():
    return Effort(name="quick", examples=8, seconds=60, shrinking=2, draws=1)


def failed(results):
    return {result.check: result.reason for result in results if result.status == "failed"}


@pytest.mark.parametrize(
    ("role", "name"),
    [("distance", "euclidean"), ("distance", "matrix"), ("loss", "distance"), ("notion", "metric-dp")],
)
def test_privopts_own_kinds_pass(role, name, how):
    assert failed(check_kind(role, name, how=how)) == {}


def with_kind(role, name, cls):
    """The registry with a kind's class changed."""
    spec = KindSpec(role=role, name=name, target=f"{cls.__module__}:{cls.__name__}", summary="planted")
    globals()[cls.__name__] = cls
    known = registry()
    kinds = {**known.kinds, (role, name): Kind(spec=spec, plugin="planted", version="0")}
    return using(evolve(discover([]), mechanisms=known.mechanisms, kinds=kinds))


class OneWay(EuclideanMetric):
    def between(self, i, j):
        return super().between(i, j) * np.where(np.asarray(i) > np.asarray(j), 2.0, 1.0)


class FarNeighbours(EuclideanMetric):
    def neighbours(self, within):
        return super().neighbours(2.0 * within)


@pytest.mark.parametrize(("metric", "words"), [(OneWay, "there and back"), (FarNeighbours, "neighbours")])
def test_a_wrong_distance_is_caught(metric, words, how):
    class Planted(Euclidean):
        def metric(self, records, outputs):
            return metric(records, outputs)

    with with_kind("distance", "euclidean", Planted):
        assert words in failed(check_kind("distance", "euclidean", how=how))["distances"]


def solve_grid(tmp_path):
    text = "[records]\ngrid = { rows = 1, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "p.toml").write_text(text + "[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n")
    return solve("exponential", tmp_path / "p.toml", tmp_path / "out")


def test_a_distance_that_differs_there_and_back_is_not_solved(tmp_path):
    class Planted(Euclidean):
        def metric(self, records, outputs):
            return OneWay(records, outputs)

    with (
        with_kind("distance", "euclidean", Planted),
        pytest.raises(RegistryError, match=r"there and back differ: .*1.0.* from record 0-0 to 0-1 and .*2.0.* back"),
    ):
        solve_grid(tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_no_real_number_is_not_solved(tmp_path):
    class Planted(LossKind):
        kind: ClassVar[str] = "distance"

        def cost(self, spaces):
            return spaces.metric.to_outputs() + 1j

        def unit(self, distance):
            return distance

    with with_kind("loss", "distance", Planted), pytest.raises(RegistryError, match="complex128, wanted real numbers"):
        solve_grid(tmp_path)


def test_a_distance_without_keys_or_problems_of_its_own_is_tried(how):
    class Planted(Euclidean):
        kind: ClassVar[str] = "straight"

    with with_kind("distance", "straight", Planted):
        [found] = check_kind("distance", "straight", how=how)
    assert found.status == "passed", found.reason


def test_a_loss_that_changes_is_caught(how):
    class Fickle(LossKind):
        kind: ClassVar[str] = "distance"

        def cost(self, spaces):
            return spaces.metric.to_outputs() + np.random.default_rng().random()

        def unit(self, distance):
            return distance

    with with_kind("loss", "distance", Fickle):
        assert "and then" in failed(check_kind("loss", "distance", how=how))["losses"]


@pytest.mark.parametrize("fault", ["measures nothing", "emits nothing"])
def test_a_notion_that_asks_for_nothing_is_caught(fault, how, monkeypatch):
    measure = MetricDP.measure
    if fault == "measures nothing":
        blind = lambda self, release, *, executor=None: evolve(measure(self, release), holds=True)  # noqa: E731
        monkeypatch.setattr(MetricDP, "measure", blind)
    else:
        monkeypatch.setattr(MetricDP, "emit", lambda self, model, **symbols: None)
    assert "planted-violation" in failed(check_kind("notion", "metric-dp", how=how))


@pytest.mark.parametrize("fault", ["sees zeros alone", "three times epsilon"])
def test_a_notion_whose_measure_lets_more_pass_than_its_rows_is_caught(fault, how, monkeypatch):
    measure = MetricDP.measure

    def lax(self, release, *, executor=None):
        honest, one, two = measure(self, release), *(release.weights[place] for place in release.pairs.T)
        if fault == "sees zeros alone":
            return evolve(honest, holds=bool(((one == 0) == (two == 0)).all()))
        return evolve(honest, holds=measure(evolve(self, epsilon=3 * self.epsilon), release).holds)

    monkeypatch.setattr(MetricDP, "measure", lax)
    assert "holds by measure() at" in failed(check_kind("notion", "metric-dp", how=how))["planted-violation"]


def test_a_notion_that_no_problem_can_name_says_so(how):
    with pytest.raises(UsageError, match="no table"):
        check_kind("notion", "pure-dp", how=how)
