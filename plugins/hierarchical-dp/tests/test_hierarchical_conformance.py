"""The conformance kit on every method with a guarantee, and on the published chain, which must fail it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.grids import by_pairs
from helpers.kits import BRIEF, PLANTED

from privopt.testing import conformance, run_check, subject
from privopt.testing.checks import checks
from privopt_hierarchical_dp import methods, sizes
from privopt_hierarchical_dp.fits.as_published import chain_query
from privopt_hierarchical_dp.kit import PROFILES
from privopt_hierarchical_dp.methods import METHODS, sensitivity
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.sizes import SizesDesign, compute_query
from privopt_hierarchical_dp.tree import Tree, add_up

WHOLE = ["hierarchical-dp", "cumulative-smoothed"]
"""A method of each query: the suite holds the first to every check, the second to what depends on noise and fit, the
others to what their fits decide."""
OF_FITS = ["solves", "certificate-holds", "oracle", "lower-bound", "round-trip"]
OBJECTIVE = ["objective-reported"]
OF_SECRETS = ["seed-determinism", "non-interference", "input-order"]
FITTED = [name for name in METHODS if METHODS[name].query != "chain" and name not in WHOLE]
OF_NOISE = [
    "guarantee-stated", "evidence", "fresh-noise", "sensitivity", "own-scale", "verify-catches", "no-secret-leak",
]  # fmt: skip
OF_BOTH = ["solves", "certificate-holds", "round-trip", *OF_NOISE]
ATTACK = ["epsilon-attack"]
"""Takes longest, and repeats what the sensitivity and the noise's own tests say."""
test_hierarchical_dp = conformance(
    "hierarchical-dp", methods=WHOLE[:1], checks=[name for name in checks() if name not in ATTACK], how=BRIEF
)
test_smoothed = conformance(
    "hierarchical-dp", methods=WHOLE[1:], checks=[*OF_FITS, *OBJECTIVE, *OF_SECRETS[1:], *OF_NOISE], how=BRIEF
)
test_fits = conformance("hierarchical-dp", methods=FITTED, checks=OF_FITS, how=BRIEF)
OF_FILES = [*OBJECTIVE, *OF_SECRETS, "verify-catches", "no-secret-leak"]
test_files_and_secrets_of_fits = pytest.mark.slow(
    conformance("hierarchical-dp", methods=FITTED, checks=OF_FILES, how="dev")
)
# Cumulative counts under one notion, counts under the other; the other methods differ in their fits alone, and an
# attack on pure DP finds what one on the other notions does where their scales are as the sensitivity asks.
test_zcdp = conformance("hierarchical-dp", profile=PROFILES["zcdp"], methods=WHOLE[1:], checks=OF_BOTH, how=BRIEF)
test_approx_dp = conformance(
    "hierarchical-dp", profile=PROFILES["approx-dp"], methods=WHOLE[:1], checks=OF_BOTH, how=BRIEF
)
(
    test_attacked,
    test_smoothed_attacked,
    test_smoothed_approx_dp,
    test_counts_zcdp,
    test_zcdp_attacked,
    test_approx_dp_attacked,
) = (
    pytest.mark.slow(conformance("hierarchical-dp", profile=PROFILES[kind], methods=[method], checks=tried, how="dev"))
    for kind, method, tried in (
        ("pure-dp", WHOLE[0], ATTACK),
        ("pure-dp", WHOLE[1], [*ATTACK, OF_SECRETS[0], "relabelling", "reordering"]),
        ("approx-dp", WHOLE[1], [*OF_BOTH, *ATTACK]),
        ("zcdp", WHOLE[0], [*OF_BOTH, *ATTACK]),
        ("zcdp", WHOLE[1], ATTACK),
        ("approx-dp", WHOLE[0], ATTACK),
    )
)


def test_published_chain_fails_the_kit():
    result = run_check("sensitivity", subject("hierarchical-dp", "cumulative-chain-as-published"), how=PLANTED)
    assert result.status == "failed"
    assert "times the epsilon" in result.reason


def _chain_for_levels(method, counts, **_):
    return chain_query(counts)


@by_pairs(
    "kind, planting",
    PROFILES,
    [
        ("hierarchical-dp", "sensitivity", lambda *_: 1),  # two counts change
        ("cumulative-dp", "compute_query", _chain_for_levels),  # one entry of each region changes
    ],
)
def test_finds_faults_in_both_measurements(monkeypatch, kind, planting):
    method, name, fault = planting
    patched = [module for module in (methods, sizes) if hasattr(module, name)]
    assert patched
    for module in patched:
        monkeypatch.setattr(module, name, fault)
    faulty = subject("hierarchical-dp", method, profile=PROFILES[kind])
    assert run_check("sensitivity", faulty, how=PLANTED).status == "failed"


def _moves(leaves):
    """Every neighbour: one group of one leaf region from a size to the next or the one before."""
    for region, size in np.argwhere(leaves > 0):
        for step in (1, -1):
            if 0 <= size + step < leaves.shape[1]:
                neighbour = leaves.copy()
                neighbour[region, size] -= 1
                neighbour[region, size + step] += 1
                yield neighbour


@pytest.mark.parametrize("method", METHODS)
def test_sensitivity_matches_search(method, random_tree):
    rng = np.random.default_rng(8)
    worst = [0] * 3
    for _ in range(40):
        tree = random_tree(rng, 3)
        leaves = rng.integers(0, 3, size=(tree.widths[-1], 4))
        old_query = compute_query(method, add_up(tree, leaves), totals=False)
        max_change = [0] * 3
        for neighbour in _moves(leaves):
            new_query = compute_query(method, add_up(tree, neighbour), totals=False)
            change = [int(np.abs(a - b).sum()) for a, b in zip(new_query, old_query, strict=True)]
            max_change = [max(pair) for pair in zip(max_change, change, strict=True)]
        if leaves.sum():
            for level, width in enumerate(tree.widths):
                worst[level] = max(worst[level], max_change[level])
                if METHODS[method].query == "chain":
                    assert max_change[level] == width
    if METHODS[method].query != "chain":
        assert worst == [sensitivity(method, 1)] * 3


def test_sensitivity_of_paper_examples(paper):
    tree, counts = paper
    neighbour = [level.copy() for level in counts]
    for level in (0, 1):  # person 05 joins household C of GA: from size 1 to size 2
        neighbour[level][0, 0] -= 1
        neighbour[level][0, 1] += 1
    change = [int(np.abs(a - b).sum()) for a, b in zip(chain_query(neighbour), chain_query(counts), strict=True)]
    assert change == [1, 2]
    problem = HierarchyProblem(hierarchy=HierarchyTable(sizes=5), privacy=Privacy(epsilon=Fraction(1)))
    nation = Tree.from_paths([("US", f"s{c % 52}", f"c{c}") for c in range(3144)])
    for design_tree, loss in ((tree, Fraction(3, 2)), (nation, Fraction(1 + 52 + 3144, 3))):
        assert SizesDesign.of(problem, "cumulative-chain-as-published", design_tree).real_loss(None) == loss


def test_finds_repeated_draws():
    # kept draws of this plugin's own kit had the attack choose its events and test them on the same ones
    profile, first_draws = PROFILES["pure-dp"], {}

    def draws(problem, method, count):
        samples = profile.draws(problem, method, count)
        return first_draws.setdefault((samples.shape, str(problem.truth)), samples)

    subject_with_repeats = subject("hierarchical-dp", "cumulative-smoothed", profile=evolve(profile, draws=draws))
    result = run_check("epsilon-attack", subject_with_repeats, how=PLANTED)
    assert result.status == "failed"
    assert "same draws twice" in result.reason
