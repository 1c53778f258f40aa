"""Models in components, and blocks that waited."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privopt.backends import Outcome, get
from privopt.decompose import Benders, blocks, split_form
from privopt.decompose.master import Master
from privopt.decompose.master_parts import Apart, components
from privopt.decompose.state import State
from privopt.dsl.form import StandardForm
from privopt.execution.clock import clock, limit
from privopt.interfaces import SolveContext


def piece(rng, rows, columns):
    """Return a bounded LP that a random point fulfils."""
    matrix = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.6)
    matrix[:, 0] = 1.0
    point = rng.random(columns)
    return matrix, matrix @ point - rng.random(rows), matrix @ point + rng.random(rows)


def model(seed, parts):
    """Pieces beside each other, one column in no row and shuffled rows."""
    rng = np.random.default_rng(seed)
    made = [piece(rng, int(rng.integers(1, 5)), int(rng.integers(1, 6))) for _ in range(parts)]
    matrix = sparse.block_diag([m for m, _, _ in made] + [sparse.csr_matrix((0, 1))], format="csr")
    order = rng.permutation(matrix.shape[0])
    n = matrix.shape[1]
    return StandardForm(
        c=rng.normal(size=n),
        A=matrix[order],
        row_lower=np.concatenate([low for _, low, _ in made])[order],
        row_upper=np.concatenate([high for _, _, high in made])[order],
        col_lower=np.zeros(n),
        col_upper=np.full(n, 3.0),
        integrality=np.zeros(n),
    )


@given(seed=st.integers(0, 10**6), parts=st.integers(1, 6), least=st.sampled_from([1, 5, 1000]))
def test_components_are_a_partition_that_no_row_crosses(seed, parts, least):
    form = model(seed, parts)
    found = components(form, least)
    assert sorted(np.concatenate([rows for rows, _ in found])) == list(range(form.shape[0]))
    assert sorted(np.concatenate([columns for _, columns in found])) == list(range(form.shape[1]))
    for rows, columns in found:
        assert np.isin(form.A[rows].indices, columns).all()
    if least == 1:
        assert len(found) >= parts + 1
    if least == 1000:
        assert len(found) == 1


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), parts=st.integers(2, 5), solver=st.sampled_from(["highs", "highs", "cbc"]))
def test_the_optimum_of_the_whole(seed, parts, solver):
    form = model(seed, parts)
    whole = get("highs").solve(form)
    apart = Apart(form, solver, least=1)
    basis = None
    for _ in range(2):  # the second time from the basis of the first
        answer = apart.solve(time_limit=600.0, basis=basis)
        basis = apart.basis
        assert apart.parts > 1
        assert answer.outcome is Outcome.OPTIMAL
        assert answer.objective == pytest.approx(whole.objective, abs=1e-7)
        assert float(form.c @ answer.x) == pytest.approx(whole.objective, abs=1e-7)
        duality = form.c - form.A.T @ answer.duals
        assert np.allclose(duality, answer.reduced, atol=1e-6)
    if solver == "highs":
        assert answer.iterations == 0
    row = sparse.csr_matrix(np.ones((1, form.shape[1])))
    apart.add_rows(row, np.array([-np.inf]), np.array([float(answer.x.sum()) - 0.01]))
    joined = apart.solve(time_limit=600.0, basis=basis)
    assert apart.parts == 1
    if joined.outcome is Outcome.OPTIMAL:
        assert joined.objective >= whole.objective - 1e-7


def test_an_infeasible_component_is_told():
    form = model(3, 3)
    rows = np.array([0])
    apart = Apart(form, "highs", least=1)
    apart.change_row_bounds(rows, np.array([1e6]), np.array([2e6]))
    assert apart.solve(time_limit=600.0).outcome is Outcome.INFEASIBLE


def two_towns():
    """Two pairs of boundary columns, each with a block of its own; nothing joins the pairs."""
    matrix = np.array(
        [
            [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
            [1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        ]
    )
    return StandardForm(
        c=[1.0, 2.0, 3.0, 1.0, 4.0, 0.5],
        A=matrix,
        row_lower=[1.0, 1.0, 0.7, 0.4],
        row_upper=[1.0, 1.0, np.inf, np.inf],
        col_lower=np.zeros(6),
        col_upper=np.ones(6),
        integrality=np.zeros(6),
    )


def test_the_master_is_in_components_until_a_cut_joins_them(monkeypatch):
    """Here none ever does: each town's cuts speak of its own boundary alone."""
    form, blocks = two_towns(), [[4], [5]]
    monkeypatch.setattr("privopt.decompose.master_parts.LEAST", 1)
    seen = []
    solve = Master.solve

    def watched(self):
        answer = solve(self)
        seen.append(self.parts)
        return answer

    monkeypatch.setattr(Master, "solve", watched)
    result = Benders(rounds=50).solve(form, blocks, SolveContext(method="benders", solver="highs", gap=1e-9))
    assert result.objective == pytest.approx(get("highs").solve(form).objective)
    assert seen
    assert min(seen) >= 2
    assert split_form(form, blocks).outer.tolist() == [0, 1, 2, 3]


def test_a_block_that_waited_has_less_time(shared_model, monkeypatch):
    """A round of Benders on 500 records ended minutes late: each of its blocks had been given all that was left."""
    form, members = shared_model
    asked = []

    def slow(_token, _piece, _solver):
        asked.append(clock().left)
        time.sleep(0.2)
        return blocks.BlockAnswer(outcome=blocks.Outcome.OPTIMAL)

    monkeypatch.setattr(blocks, "relax_block", slow)
    made = blocks.Blocks(split_form(form, members), "highs", SolveContext(method="benders", solver="highs"))
    with limit(60.0):
        made.relax(State.begin(len(made)))
    assert len(asked) == len(made) > 1
    assert all(later <= earlier - 0.19 for earlier, later in pairwise(asked))
