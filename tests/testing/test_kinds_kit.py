"""The kit for kinds: privopt's own pass, planted faults are caught."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from attrs import evolve
from hypothesis import strategies as st

from privopt.errors import RegistryError, UnknownNameError, UsageError
from privopt.registry import Kind, Registry, registry, using
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.specs import KindSpec
from privopt.testing import GeneratedProblem, check_kind, kind_conformance
from privopt.testing.efforts import EFFORTS, Effort
from privopt_metric_dp.kit import check_kinds, metric_problems
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import LossKind
from privopt_metric_dp.problem.distance_kinds import Euclidean
from privopt_metric_dp.space.metrics import EuclideanMetric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import Roads


@pytest.fixture(scope="module")
def how():
    return Effort(name="quick", examples=8, seconds=60, shrinking=0.2, draws=1)


def failure_reasons(results):
    return {result.check: result.reason for result in results if result.status == "failed"}


KINDS = [
    ("distance", "euclidean"),
    ("distance", "matrix"),
    ("loss", "distance"),
    ("loss", "matrix"),
    pytest.param("distance", "graph", marks=pytest.mark.slow),
    pytest.param("distance", "haversine", marks=pytest.mark.slow),
    pytest.param("loss", "travel-cost", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("role", "name"), KINDS)
def test_shipped_kinds_pass(role, name, how):
    assert failure_reasons(check_kind(role, name, how=how)) == {}


def test_every_role_has_checks():
    for role in registry().names("role"):
        assert registry().of(f"check of each {role}"), role
    tried = {(role, name) for role, name in (getattr(kind, "values", kind) for kind in KINDS)}
    assert tried == {(role, name) for role in ("distance", "loss") for name in registry().names(role)}


@pytest.mark.parametrize("role", ["mechanism", "check", "sketch"])
def test_what_is_no_role_is_refused_with_the_roles(role):
    with pytest.raises(UnknownNameError, match=r"no role is called .*decomposer, distance, loss, notion, solver"):
        kind_conformance(role, "optimal-lp")


def test_shipped_notion_passes_with_a_note(how):
    results = check_kind("notion", "metric-dp", how=how)
    assert failure_reasons(results) == {}
    passed = next(result for result in results if result.check == "planted-violation")
    assert "up to 2%" in passed.note


def with_kind(role, name, cls):
    """Return the registry with a kind's class changed."""
    spec = KindSpec(role=role, name=name, target=f"{cls.__module__}:{cls.__name__}", summary="planted")
    globals()[cls.__name__] = cls
    return using(registry().replace(Kind(spec=spec, plugin="planted", version="0")))


class OneWay(EuclideanMetric):
    def between(self, i, j):
        return super().between(i, j) * np.where(np.asarray(i) > np.asarray(j), 2.0, 1.0)


class FarNeighbours(EuclideanMetric):
    def neighbours(self, limit):
        return super().neighbours(2.0 * limit)


@pytest.mark.parametrize(("metric", "words"), [(OneWay, "there and back"), (FarNeighbours, "neighbours")])
def test_finds_wrong_distances(metric, words, how):
    class Planted(Euclidean):
        def metric(self, records, outputs):
            return metric(records, outputs)

    with with_kind("distance", "euclidean", Planted):
        assert words in failure_reasons(check_kind("distance", "euclidean", how=how))["distances"]


class FarOutputs(RoadMetric):
    def to_outputs(self, i=None):
        return 2.0 * super().to_outputs(i)


@pytest.mark.parametrize(("metric", "fault"), [(RoadMetric, None), (FarOutputs, "the outputs are the records")])
def test_infinite_distances_hide_no_wrong_ones(metric, fault):
    places = Space(ids=["a", "b", "c"], source="points.csv")
    roads = Roads(["b", "a"], ["c", "elsewhere"], [1.0, 1.0])
    data = MetricData(
        records=places,
        outputs=places,
        metric=metric(roads, places),
        epsilon=1.0,
        within=None,
        unit="km",
        loss_unit="km",
        prior=np.full(3, 1 / 3),
        cost=np.zeros((3, 3)),
        crossed=True,
    )
    complaint = check_kinds._check_distance(SimpleNamespace(data=data), None)
    assert complaint is None if fault is None else fault in complaint


def solve_grid(tmp_path):
    text = "[records]\ngrid = { rows = 1, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "p.toml").write_text(text + "[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n")
    return solve("exponential", tmp_path / "p.toml", tmp_path / "out")


def test_asymmetric_distance_is_not_solved(tmp_path):
    class Planted(Euclidean):
        def metric(self, records, outputs):
            return OneWay(records, outputs)

    with (
        with_kind("distance", "euclidean", Planted),
        pytest.raises(RegistryError, match=r"both directions.*1.0.*r0c0 to r0c1.*2.0"),
    ):
        solve_grid(tmp_path)
    assert not (tmp_path / "out").exists()


def test_complex_loss_is_not_solved(tmp_path):
    class Planted(LossKind):
        kind: ClassVar[str] = "distance"

        def cost(self, spaces):
            return spaces.metric.to_outputs() + 1j

        def unit(self, distance):
            return distance

    with with_kind("loss", "distance", Planted), pytest.raises(RegistryError, match=r"real numbers.*complex128"):
        solve_grid(tmp_path)


def test_distance_without_keys_is_tried(how, monkeypatch):
    """The kit's own problems, of which it draws hundreds before it gives one the name, are a single one here."""

    class Planted(Euclidean):
        kind: ClassVar[str] = "straight"

    def problems(**options):
        return metric_problems(**options) if options else st.just(GeneratedProblem(toml=""))

    monkeypatch.setattr(check_kinds, "metric_problems", problems)
    with with_kind("distance", "straight", Planted):
        [result] = check_kind("distance", "straight", how=evolve(how, examples=2))
    assert result.status == "passed", result.reason


def test_finds_changing_loss(how):
    class Fickle(LossKind):
        kind: ClassVar[str] = "distance"

        def cost(self, spaces):
            return spaces.metric.to_outputs() + np.random.default_rng().random()

        def unit(self, distance):
            return distance

    with with_kind("loss", "distance", Fickle):
        assert "and then" in failure_reasons(check_kind("loss", "distance", how=how))["losses"]


@pytest.mark.parametrize("fault", ["measures nothing", pytest.param("emits nothing", marks=pytest.mark.slow)])
def test_finds_notion_that_requires_nothing(fault, how, monkeypatch):
    measure = MetricDP.measure
    if fault == "measures nothing":
        blind = lambda self, release, *, executor=None: evolve(measure(self, release), holds=True)  # noqa: E731
        monkeypatch.setattr(MetricDP, "measure", blind)
    else:
        monkeypatch.setattr(MetricDP, "emit", lambda self, model, **symbols: None)
    reason = failure_reasons(check_kind("notion", "metric-dp", how=how))["planted-violation"]
    assert ("differ by 2%" in reason) == (fault == "emits nothing")  # what the check allows is said with it


@pytest.mark.parametrize("fault", ["sees zeros alone", pytest.param("three times epsilon", marks=pytest.mark.slow)])
def test_finds_notion_whose_measure_is_lax(fault, how, monkeypatch):
    measure = MetricDP.measure

    def lax(self, release):
        honest, weight, other_weight = measure(self, release), *(release.weights[row] for row in release.pairs.T)
        if fault == "sees zeros alone":
            return evolve(honest, holds=bool(((weight == 0) == (other_weight == 0)).all()))
        return evolve(honest, holds=measure(evolve(self, epsilon=3 * self.epsilon), release).holds)

    monkeypatch.setattr(MetricDP, "measure", lax)
    assert (
        "measure() accepts a release"
        in failure_reasons(check_kind("notion", "metric-dp", how=how))["planted-violation"]
    )


def test_finds_notion_refused_by_the_pipeline(how, monkeypatch):
    original_guarantee = MetricDP.guarantee.fget
    monkeypatch.setattr(MetricDP, "guarantee", property(lambda self: evolve(original_guarantee(self), kind="acme")))
    assert "makes no release" in failure_reasons(check_kind("notion", "metric-dp", how=how))["released"]


@pytest.fixture
def third_party(monkeypatch):
    """Register the kinds of docs/examples/third-party."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs/examples/third-party/src"))
    import ranked_response

    kinds = [Kind(spec=spec, plugin="third", version="0") for spec in ranked_response.privopt_kinds()]
    with using(registry().replace(*kinds)):
        yield


def test_finds_notion_without_possible_release(how, third_party, monkeypatch):
    """One that pairs along a path imply nothing for, whose repair stores only those that imply the others."""
    from ranked_response.notions import ApproximateMetricDP

    repair = ApproximateMetricDP.repair

    def fewer(self, z, data, context):
        pairs, distances = data.standing
        return evolve(repair(self, z, data, context), pairs=pairs, distances=distances)

    monkeypatch.setattr(ApproximateMetricDP, "repair", fewer)
    results = failure_reasons(check_kind("notion", "approximate-metric-dp", how=how))
    assert set(results) == {"released"}
    assert re.search(r"pairs: records \S+ and \S+: .*not stored", results["released"])


@pytest.mark.slow
def test_notion_without_paths_checks_every_pair(how, third_party, tmp_path):
    assert failure_reasons(check_kind("notion", "approximate-metric-dp", how=how)) == {}
    tables = "[records]\ngrid = { rows = 1, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    tables += "[privacy]\nkind = 'approximate-metric-dp'\nepsilon = 1.0\ndelta = 0.01\n[utility]\nkind = 'distance'\n"
    (tmp_path / "p.toml").write_text(tables)
    release = solve("optimal-lp", tmp_path / "p.toml", tmp_path / "one", Options(method="full", solver="highs"))
    weights = np.load(tmp_path / "one" / "mechanism.npz")["weights"]
    np.save(tmp_path / "z.npy", weights)
    (tmp_path / "p.toml").write_text(tables + "[given]\nmatrix = 'z.npy'\n")
    repaired = solve("given", tmp_path / "p.toml", tmp_path / "two", Options(method="repair"))
    assert repaired.result.certificate.checked == release.result.certificate.checked == 6  # three pairs, both ways
    assert np.array_equal(np.load(tmp_path / "two" / "mechanism.npz")["weights"], weights)


def test_effort_may_be_a_name(monkeypatch):
    quick = Effort(name="quick", examples=1, seconds=1, shrinking=1, draws=1)
    monkeypatch.setitem(EFFORTS, "quick", quick)
    for role, name in (("distance", "euclidean"), ("solver", "highs"), ("decomposer", "benders")):
        assert failure_reasons(check_kind(role, name, how="quick")) == {}
        with pytest.raises(UnknownNameError, match="quick"):
            check_kind(role, name, how="quik")


def test_notion_that_no_problem_names_says_so(how):
    results = check_kind("notion", "pure-dp", how=how)
    assert {result.status for result in results} == {"not applicable"}
    assert all("no table" in result.reason for result in results)


def test_role_without_checks_names_those_that_have(monkeypatch):
    entries = Registry.of
    monkeypatch.setattr(
        Registry, "of", lambda self, category: {} if category.endswith("each notion") else entries(self, category)
    )
    with pytest.raises(UsageError, match=r"no checks of each notion, only of each .*solver"):
        kind_conformance("notion", "pure-dp")
