"""Several tables under one budget: least squares over margins, whole numbers that agree, promises, the kit."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from attrs import evolve
from helpers.grids import first_alone
from helpers.kits import BRIEF, PLANTED, thin_neighbours
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.noise import split_budget
from privopt.testing import conformance, run_check, subject
from privopt.testing.checks import checks
from privopt_hierarchical_dp import design
from privopt_hierarchical_dp.kit import TABLES_PROFILE, related_tables
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.noise_distributions import GAUSSIAN
from privopt_hierarchical_dp.relations import TABLE_RELATIONS, TableRelation
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.fit import fit_tables, least_objective, noise_of_margin
from privopt_hierarchical_dp.tables.margins import Domain, steps_of
from privopt_hierarchical_dp.tree import Tree, add_up

RING = ((0, 1), (1, 2), (0, 2))
FAMILIES = [((),), ((0,), (0, 1)), ((0, 1), (1, 2)), RING, ((0, 1), (2,)), ((0, 1), (1, 2), (1,), (2, 3))]
SIZES = (2, 3, 2, 4)


def domain_of(tables, weights=None):
    return Domain(sizes=SIZES, tables=tables, weights=tuple(weights or (1.0 / (1 + n) for n in range(len(tables)))))


def joint_sums(domain):
    """For each table a matrix from all cells of all attributes to its own."""
    cells = list(product(*map(range, SIZES)))
    return [
        np.array(
            [
                [all(all_values[a] == k for a, k in zip(t, cell, strict=True)) for all_values in cells]
                for cell in np.ndindex(domain.shape(t))
            ]
        )
        for t in domain.tables
    ]


@pytest.mark.parametrize("tables", FAMILIES)
def test_effects_are_weighted_least_squares(tables):
    domain, rng = domain_of(tables), np.random.default_rng(len(tables))
    noisy = [rng.integers(-30, 30, size=(2, *domain.shape(table))) for table in tables]
    sums = joint_sums(domain)
    weights = np.sqrt(np.concatenate([np.full(len(m), w) for m, w in zip(sums, domain.weights, strict=True)]))
    design = np.concatenate(sums).astype(float)
    solve_all = np.linalg.pinv(weights[:, None] * design) * weights
    noise = [Noise(variance=float(2 + n), fourth=float(5 * n)) for n in range(len(tables))]
    flat = np.concatenate([np.full(m.shape[0], n) for n, m in enumerate(sums)])
    effects = domain.effects(noisy)
    for table, matrix in zip(tables, sums, strict=True):
        fitted = matrix @ solve_all
        for region in range(2):
            expected = fitted @ np.concatenate([values[region].ravel() for values in noisy])
            assert np.allclose(domain.margin(effects, table)[region].ravel(), expected)
        estimate = noise_of_margin(domain, table, noise)
        assert np.allclose(estimate.variance, (fitted**2 @ np.array([noise[n].variance for n in flat])))
        assert np.allclose(estimate.fourth, (fitted**4 @ np.array([noise[n].fourth for n in flat])))


def test_tables_meet_in_shared_margins():
    for tables in FAMILIES:
        margins: list[tuple[int, ...]] = [()]
        for step in steps_of(tables):
            assert any(set(step.given) <= set(margin) for margin in margins)
            earlier_attributes = {a for margin in margins for a in margin}
            assert set(step.margin) & earlier_attributes <= set(step.given) or any(
                set(step.margin) & earlier_attributes <= set(m) for m in margins
            )
            margins.append(step.margin)
        assert all(any(set(table) <= set(margin) for margin in margins) for table in tables)
    assert (0, 1, 2) in [step.margin for step in steps_of(RING)]
    assert (0, 1, 2) not in [step.margin for step in steps_of(((0, 1), (1, 2)))]


@settings(max_examples=25)
@given(
    tables=st.sampled_from(FAMILIES),
    exact=st.sampled_from([0, 1, None]),
    seed=st.integers(0, 10**6),
)
def test_fits_any_noise_by_consistent_integers(tables, exact, seed, random_tree):
    """Also noise that is no noise of anything: what must hold is checked in every region, by the joint's own sums."""
    rng, domain = np.random.default_rng(seed), domain_of(tables)
    tree = random_tree(rng, int(rng.integers(1, 4)))
    noisy = [[rng.integers(-50, 60, size=(width, *domain.shape(t))) for width in tree.widths] for t in tables]
    leaves = rng.integers(0, 40, size=tree.widths[-1])
    totals = add_up(tree, leaves)[:exact]
    levels = [1.0 / (1 + level) for level in range(tree.depth)]
    scales = [Fraction(3 * (1 + level)) for level in range(tree.depth)]
    fixed = {"levels": levels, "totals": totals, "law": GAUSSIAN, "scales": scales}
    counts = fit_tables(tree, domain, noisy, **fixed, gap=1e-2)
    for level, level_tables in enumerate(zip(*counts, strict=True)):
        for number, (table, values) in enumerate(zip(tables, level_tables, strict=True)):
            assert values.min() >= 0
            if level < len(totals):
                assert (values.reshape(len(values), -1).sum(axis=1) == totals[level]).all()
            if level:
                assert (np.add.reduceat(values, tree.start[level - 1][:-1], axis=0) == counts[number][level - 1]).all()
            for other_table, other_values in zip(tables, level_tables, strict=True):
                shared_attributes = [a for a in table if a in other_table]
                margin, other_margin = (
                    v.sum(axis=tuple(1 + k for k, a in enumerate(t) if a not in shared_attributes))
                    for t, v in ((table, values), (other_table, other_values))
                )
                assert (margin == other_margin).all()
    deviations = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(noisy, counts, strict=True)]
    fitted_error = sum(
        weight * level_weight * np.sum(level_tables**2)
        for weight, by_level in zip(domain.weights, deviations, strict=True)
        for level_weight, level_tables in zip(levels, by_level, strict=True)
    )
    assert least_objective(tree, domain, levels, deviations) <= fitted_error * (1 + 1e-9) + 1e-6


def test_bound_is_the_minimum_over_consistent_reals():
    tree, levels = Tree.from_paths([("r", "a"), ("r", "b"), ("r", "c")]), (0.25, 1.0)
    domain, rng = domain_of(RING), np.random.default_rng(3)
    noisy = [[rng.integers(-9, 20, size=(width, *domain.shape(t))) for width in tree.widths] for t in RING]
    sums = joint_sums(domain)
    blocks, aims, weights = [], [], []
    for level, width in enumerate(tree.widths):
        for region in range(width):
            for matrix, by_level, weight in zip(sums, noisy, domain.weights, strict=True):
                row = np.zeros((len(matrix), 3, matrix.shape[1]))
                row[:, slice(None) if level == 0 else region] = matrix[:, None] if level == 0 else matrix
                blocks.append(row.reshape(len(matrix), -1))
                aims.append(by_level[level][region].ravel())
                weights.append(np.full(len(matrix), np.sqrt(levels[level] * weight)))
    design, aim, weight = np.concatenate(blocks), np.concatenate(aims), np.concatenate(weights)
    best = np.linalg.lstsq(weight[:, None] * design, weight * aim, rcond=None)[0]
    bound = least_objective(tree, domain, levels, noisy)
    assert bound == pytest.approx(float(np.sum((weight * (design @ best - aim)) ** 2)))


# --- promises ----------------------------------------------------------------------------------------------

# Noise is the design's of one table, so that an attack repeats what is seen of its scale; orders and a seed are held
# for one table, and bad input and any release's use are refused alike.
LONG = ("bad-input", "epsilon-attack", "order-leak", "reordering", "seed-determinism", "use-verifies")
MOST_CELLS = 12
"""Of up to 24: three leaves with two attributes."""
SMALL = evolve(
    thin_neighbours(TABLES_PROFILE),
    problems=TABLES_PROFILE.problems.filter(lambda problem: len(problem.rows("records.csv")) <= 1 + MOST_CELLS),
)
test_individuals = conformance(
    "hierarchical-tables", profile=SMALL, checks=[name for name in checks() if name not in LONG], how=BRIEF
)
test_tables_of_any_shape = conformance(
    "hierarchical-tables", checks=["solves", "certificate-holds", "own-scale", "oracle"], how=BRIEF
)
test_every_check = pytest.mark.slow(conformance("hierarchical-tables", how="dev"))
OF_NOISE = [
    "solves",
    "certificate-holds",
    "fresh-noise",
    "sensitivity",
    "own-scale",
    "epsilon-attack",
    "round-trip",
    "verify-catches",
]
test_households_that_are_replaced = conformance(
    "hierarchical-tables", profile=related_tables("replaced"), checks=["certificate-holds"], how="dev"
)
test_households_sensitivity = pytest.mark.slow(
    conformance("hierarchical-tables", profile=related_tables("replaced"), checks=["sensitivity"], how="dev")
)
test_households_zcdp = pytest.mark.slow(
    conformance("hierarchical-tables", profile=related_tables("replaced", kind="zcdp"), checks=OF_NOISE, how="dev")
)
test_moves_zcdp = pytest.mark.slow(
    conformance("hierarchical-tables", profile=related_tables("moves", kind="zcdp"), checks=OF_NOISE, how="dev")
)
test_attributes_approx_dp = pytest.mark.slow(
    conformance(
        "hierarchical-tables", profile=related_tables("attributes", kind="approx-dp"), checks=OF_NOISE, how="dev"
    )
)


def _double_budget(budget, shares):
    return tuple(2 * part for part in split_budget(budget, shares))


@first_alone("kind", ["pure-dp", "zcdp", "approx-dp"])
def test_finds_excess_shares_and_wrong_sensitivity(monkeypatch, kind):
    faulty = subject("hierarchical-tables", "margins", profile=related_tables("moves", kind=kind))
    with monkeypatch.context() as patch:
        patch.setattr(design, "split_budget", _double_budget)
        assert run_check("sensitivity", faulty, how=PLANTED).status == "failed"
        assert run_check("certificate-holds", faulty, how=PLANTED).status == "failed"
    with monkeypatch.context() as patch:  # two cells change
        patch.setitem(TABLE_RELATIONS, "moves", evolve(TABLE_RELATIONS["moves"], sensitivity=1))
        assert run_check("sensitivity", faulty, how=PLANTED).status == "failed"


def test_finds_noise_for_the_wrong_household_relation(monkeypatch):
    original = TableRelation.of_households
    monkeypatch.setattr(
        TableRelation,
        "of_households",
        lambda self, max_persons, kind: evolve(original(self, max_persons, kind), sensitivity=max_persons),
    )
    faulty = subject("hierarchical-tables", "margins", profile=related_tables("replaced"))
    assert run_check("sensitivity", faulty, how=PLANTED).status == "failed"


def test_finds_table_without_budget(monkeypatch):
    """The first table is measured as if the whole level were its own."""
    draw = TablesDesign.draw

    def forgetful(self, counts, *, seed):
        noisy, records = draw(self, counts, seed=seed)
        for level, parts in enumerate(zip(*self.budgets, strict=True)):
            noisy[0][level], records[0][level] = self.law.draw(counts[0][level], sum(parts), self.delta, seed=None)
        return noisy, records

    monkeypatch.setattr(TablesDesign, "draw", forgetful)
    outcome = run_check("certificate-holds", subject("hierarchical-tables", "margins"), how=PLANTED)
    assert outcome.status == "failed"
