"""zCDP and (epsilon, delta)-DP by discrete Gaussian noise: keys, certificates, forgeries, ledgers, plans, intervals."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from helpers.grids import by_pairs
from helpers.mended_sums import mend

from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt.numbers.gaussian import delta_of, rho_of
from privopt.report.promise_text import claim
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.mechanism import HierarchicalDP
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GAUSSIAN
from privopt_hierarchical_dp.plan import errors_on
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy, Settings
from privopt_hierarchical_dp.sizes import SizesDesign

ZCDP = 'kind = "zcdp"\nrho = 0.1\n'
APPROX = 'kind = "approx-dp"\nepsilon = 1\ndelta = 1e-6\n'


def _problem(folder, privacy, *, like=False):
    rows = [f"all,{region},{size},{60 * size}" for region in "ab" for size in range(1, 5)]
    (folder / "counts.csv").write_text("\n".join(["level_1,level_2,size,groups", *rows]), "utf-8")
    input_key = 'like = "counts.csv"\n' if like else 'counts = "counts.csv"\n'
    path = folder / "problem.toml"
    path.write_text(f"[hierarchy]\n{input_key}sizes = 4\n[privacy]\n{privacy}", "utf-8")
    return path


@by_pairs("method, privacy", [name for name in METHODS if METHODS[name].query != "chain"], [ZCDP, APPROX])
def test_every_method_keeps_both_notions(tmp_path, method, privacy):
    release = solve("hierarchical-dp", _problem(tmp_path, privacy), tmp_path / "out", Options(method=method))
    certificate = release.result.certificate
    assert (certificate.holds, certificate.evidence) == (True, "declared")
    assert "scales" not in certificate.notes
    assert certificate.rests_on == "that the noise was drawn, freshly and at those variances"
    spent_rho = sum(
        GAUSSIAN.spend_of(Fraction(text), int(delta))
        for text, delta in zip(certificate.notes["variances"], certificate.notes["sensitivities"], strict=True)
    )
    if privacy is ZCDP:
        assert Fraction(99, 1000) < spent_rho <= Fraction(1, 10)
    else:
        assert spent_rho <= rho_of(Fraction(1), Fraction("1e-6"))
        assert float(Fraction("0.999e-6")) < float(delta_of(spent_rho, Fraction(1))) <= certificate.worst <= 1e-6
    assert verify(tmp_path / "out").holds


@pytest.mark.parametrize(
    ("privacy", "words", "is_warned"),
    [
        ("epsilon = 1\n", "makes little difference: whether", False),
        ("epsilon = 1.1\n", "changes may show: whether", False),
        ("epsilon = 4.6\n", "changes may show: whether", False),
        ("epsilon = 4.7\n", "next to nothing: whether", True),
        ("epsilon = 50\n", "at most e^50", True),
        (ZCDP, "rho = 0.1", False),
        ('kind = "zcdp"\nrho = 1\n', "changes may show: an attacker who must tell", False),
        ('kind = "zcdp"\nrho = 3.3\n', "at rho = 3.3", True),
        (APPROX, "makes little difference", False),
        ('kind = "approx-dp"\nepsilon = 5\ndelta = 1e-6\n', "next to nothing", True),
        ('kind = "approx-dp"\nepsilon = 1\ndelta = 0.5\n', "changes may show", False),
        ('kind = "approx-dp"\nepsilon = 1\ndelta = 0.99\n', "next to nothing", True),
    ],
)
def test_states_how_much_a_promise_hides(tmp_path, privacy, words, is_warned):
    release = solve("hierarchical-dp", _problem(tmp_path, privacy), tmp_path / "out", Options())
    assert words in claim(release.result)
    assert any("next to nothing" in line for line in release.warnings) is is_warned


@pytest.mark.parametrize("privacy", [ZCDP, APPROX])
def test_smaller_stated_variance_does_not_verify(tmp_path, privacy):
    output_folder = tmp_path / "out"
    solve("hierarchical-dp", _problem(tmp_path, privacy), output_folder, Options())
    with np.load(output_folder / "noisy.npz") as archive:
        arrays = dict(archive)
    arrays["variances"] = np.array([str(Fraction(text) / 2) for text in arrays["variances"].tolist()])
    np.savez(output_folder / "noisy.npz", **arrays)
    mend(output_folder)
    assert not verify(output_folder).holds


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ('kind = "zcdp"\nepsilon = 1\n', "privacy.rho: .*zcdp.*got nothing"),
        ('kind = "zcdp"\nrho = 1\ndelta = 0.1\n', "privacy.delta: .*no such key"),
        (
            'kind = "approx-dp"\nepsilon = 1\n',
            "privacy.delta: .*approx-dp.*got nothing",
        ),
        ('kind = "approx-dp"\nepsilon = 1\ndelta = 1.0\n', "privacy.delta: expected .* below 1"),
        ("epsilon = 1\nrho = 1\n", "privacy.rho: .*no such key"),
        ("rho = 1\n", "privacy.epsilon: .*got nothing"),
        ('kind = "gaussian"\nrho = 1\n', "privacy.kind: .*pure-dp, zcdp, approx-dp.*gaussian"),
        ('kind = "zcdp"\nrho = 1e-15\n', "privacy.rho: .*noise of variance"),
    ],
)
def test_each_notion_has_its_own_keys(tmp_path, privacy, words):
    with pytest.raises(InputError, match=words):
        solve("hierarchical-dp", _problem(tmp_path, privacy), tmp_path / "out", Options())


def test_published_chain_has_no_gaussian_noise(tmp_path):
    options = Options(method="cumulative-chain-as-published", allow_unsafe=True)
    with pytest.raises(InputError, match=r"privacy\.kind: .*zcdp"):
        solve("hierarchical-dp", _problem(tmp_path, ZCDP), tmp_path / "out", options)


@pytest.mark.parametrize(("privacy", "budget"), [(ZCDP, "rho"), (APPROX, "epsilon")])
def test_plan_states_the_budget_of_the_notion(tmp_path, privacy, budget):
    from privopt.declare import load_problem

    problem = load_problem(HierarchyProblem, _problem(tmp_path, privacy, like=True))
    plan = HierarchicalDP().plan(problem, "problem.toml", SolveContext(method="hierarchical-dp"))
    assert plan.budget == budget
    sums = [sum(errors) for _, errors in sorted(plan.errors.items())]
    assert sums[0] > sums[-1]
    assert json.loads(json.dumps(plan.to_json()))


OF_THE_SUITE = {("cumulative-dp", 4, "1"), ("top-down", 1, "1"), ("hierarchical-dp", 1, "1")}


@pytest.mark.parametrize(
    ("method", "max_quantity", "epsilon", "pure", "gaussian"),
    [
        pytest.param(*row, marks=[pytest.mark.slow] * (row[:3] not in OF_THE_SUITE))
        for row in (
            ("cumulative-smoothed", 1, "0.1", 14_027, 17_612),
            ("cumulative-smoothed", 1, "1", 2_344, 4_721),
            ("cumulative-smoothed", 4, "0.1", 33_680, 25_057),
            ("cumulative-smoothed", 4, "1", 7_130, 7_465),
            ("cumulative-dp", 1, "0.1", 44_339, 50_420),
            ("cumulative-dp", 1, "1", 6_063, 8_071),
            ("cumulative-dp", 4, "0.1", 124_545, 86_698),
            ("cumulative-dp", 4, "1", 20_323, 14_683),
            ("top-down", 1, "0.1", 71_903, 63_471),
            ("top-down", 1, "1", 9_622, 9_237),
            ("hierarchical-dp", 1, "0.1", 67_300, 58_225),
            ("hierarchical-dp", 1, "1", 8_842, 8_617),
        )
    ],
)
def test_table_of_six_levels(method, max_quantity, epsilon, pure, gaussian, six_levels):
    """docs/papers/hierarchical-dp.md: errors over all levels, mean of ten seeded runs."""
    tree, leaves = six_levels
    approx = Privacy(kind="approx-dp", epsilon=Fraction(epsilon), delta=Fraction("1e-6"))
    gaussians = {1: approx, 4: Privacy(kind="zcdp", rho=approx.budget)}  # the same noise by either name
    kinds = [Privacy(epsilon=Fraction(epsilon)), gaussians[max_quantity]]
    for privacy, expected in zip(kinds, (pure, gaussian), strict=True):
        problem = HierarchyProblem(
            hierarchy=HierarchyTable(sizes=10), privacy=privacy, settings=Settings(max_quantity=max_quantity)
        )
        error = errors_on([leaves] * 10, SizesDesign.of(problem, method, tree)).sum(axis=1).mean()
        assert error == pytest.approx(expected, rel=0.02)
