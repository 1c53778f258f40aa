"""Whatever stands in proof.npz, no bound above the optimum is accepted: the optimum by HiGHS, on its own rows."""

import json

import numpy as np
import pytest
from helpers.forgeries import BASES, make
from helpers.whole_program import optimum

from privopt.checker import Problem, RefusedError
from privopt.errors import PrivoptError
from privopt.run.verify import load_release
from privopt_metric_dp.checkers.matrix import Matrix
from privopt_metric_dp.proof import Rows, Trees, read_proof

ROOM = 1e-9
"""Relative to the optimum: what HiGHS may be wrong by."""


def mutate_proof(rng, proof):
    """Another proof: some multipliers, rows, pairs, prices or trees changed, in most cases of a form that is read."""
    if isinstance(proof, Trees):
        return mutate_trees(rng, proof)
    pairs, starts, rows, values = proof.pairs.copy(), proof.starts.copy(), proof.rows.copy(), np.array(proof.values)
    values = values.astype(np.float64)
    for _ in range(int(rng.integers(1, 6))):
        kind, position = int(rng.integers(0, 8)), int(rng.integers(0, max(len(values), 1)))
        if kind == 0:
            values[position] *= rng.lognormal(0, 3)
        elif kind == 1:
            values = values * rng.lognormal(0, 0.2, len(values))
        elif kind == 2:
            values[position] = rng.lognormal(0, 10)
        elif kind == 3:
            rows[position] = rng.integers(0, len(pairs))
        elif kind == 4:
            pairs[rng.integers(0, len(pairs))] = rng.integers(0, pairs.max() + 1, 2)
        elif kind == 5:
            starts[1:-1] = np.sort(rng.integers(0, len(values) + 1, len(starts) - 2))
        elif kind == 6:
            values[position] = rng.choice([0.0, -1.0, 1e300, 5e-324, np.inf])
        else:
            values[rng.permutation(len(values))[: len(values) // 3]] = 0.0
    return Rows(pairs=pairs, starts=starts, rows=rows, values=values)


def mutate_trees(rng, proof):
    prices, trees = proof.prices.copy(), proof.trees.copy()
    for _ in range(int(rng.integers(1, 6))):
        kind, i = int(rng.integers(0, 9)), int(rng.integers(0, len(prices)))
        k, j = int(rng.integers(0, len(trees))), int(rng.integers(0, len(prices)))
        if kind == 0:
            prices[i] *= rng.lognormal(0, 3)
        elif kind == 1:
            prices = prices * rng.lognormal(0, 10.0 ** rng.uniform(-12, 0), len(prices))
        elif kind == 2:
            prices[i] = rng.choice([0.0, -1.0, 1e300, -1e300, 5e-324, np.nan, np.inf])
        elif kind == 3:
            trees[k, i] = rng.integers(0, 2 * len(prices) + 3)
        elif kind == 4:  # one that hangs on itself, by another maybe
            trees[k, i], trees[k, j] = 2 * ((j - i) % len(prices)), 2 * ((i - j) % len(prices)) + 1
        elif kind == 5:
            trees[k] = trees[rng.integers(0, len(trees))]
        elif kind == 6:
            trees[k, i] ^= 1
        elif kind == 7:
            trees = trees[rng.permutation(len(trees))]
        else:
            trees[:, i] = 0
    return Trees(prices=prices, trees=trees)


def count_refusals(base, count, tmp_path):
    """How many of so many mutations are refused by the checker and by verify's evaluation."""
    folder = make(base, tmp_path)
    release = load_release(folder)
    data, result = release.problem.data, json.loads((folder / "result.json").read_text())
    best = optimum(data.weighted, data.pairs, float(data.epsilon) * data.distances)
    assert result["objective"]["lower_bound"] <= best * (1 + ROOM)
    result["objective"]["lower_bound"] = best * (1 + ROOM) + 1e-300
    result["objective"]["value"] = best * 2
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    matrix = Matrix(folder, Problem(folder, result["problem"], names), result)
    matrix.integers()
    proof = read_proof(folder, data.shape)
    rng = np.random.default_rng(17)
    refusal_count = 0
    for _ in range(count):
        mutated = mutate_proof(rng, proof)
        mutated.write(folder)
        try:
            matrix.objective()
        except (RefusedError, ValueError, OverflowError):
            refusal_count += 1
        try:
            bound = read_proof(folder, data.shape).bound(data, data.weighted)
        except PrivoptError:
            bound = -np.inf
        assert bound <= best * (1 + ROOM)
    return refusal_count


@pytest.mark.parametrize("base", [base for base, (mechanism, _) in BASES.items() if mechanism != "photo-censor"])
def test_no_mutated_proof_exceeds_the_optimum(tmp_path, base):
    assert count_refusals(base, 25, tmp_path) == 25


@pytest.mark.slow
@pytest.mark.parametrize("base", [base for base, (mechanism, _) in BASES.items() if mechanism != "photo-censor"])
def test_no_mutation_of_thousands_raises_a_bound(tmp_path, base):
    assert count_refusals(base, 2_500, tmp_path) == 2_500
