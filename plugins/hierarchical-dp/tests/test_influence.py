"""Sums of powers of influences, by whole arrays; batches of splits, one by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privopt.declare import File
from privopt_hierarchical_dp.plan import forecast_errors
from privopt_hierarchical_dp.shares import as_split
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.margins import Domain
from privopt_hierarchical_dp.tables.problem import CountTable, TablesHierarchy, TablesPrivacy, TablesProblem


def test_powers_of_influence_match_whole_arrays():
    domain = Domain(sizes=(5, 3, 1, 4), tables=((0, 1), (1, 3), (0,), (), (2,)), weights=(1, 0.5, 0.3, 2, 1.0))
    for margin in ((0, 1), (1, 3), (), (0,), (2,)):
        squares, fourths = domain.influence_powers(margin)
        influence = domain.influence(margin)
        np.testing.assert_allclose(squares, [np.sum(part**2) for part in influence])
        np.testing.assert_allclose(fourths, [np.sum(part**4) for part in influence])
        # Effects are uncorrelated, so the part of the region's number adds to the squares.
        contrasts, _ = domain.influence_powers(margin, contrasts_only=True)
        number, _ = domain.influence_powers(())
        np.testing.assert_allclose(squares, contrasts + number / domain.cells(margin) ** 2)


@pytest.mark.parametrize("exact", [None, ("level_1",), ("level_2",)])
@pytest.mark.parametrize(
    "privacy", [TablesPrivacy(epsilon=Fraction(1)), TablesPrivacy(kind="zcdp", rho=Fraction(1, 50))]
)
def test_batches_of_splits_match_single_ones(tmp_path, exact, privacy):
    path = tmp_path / "regions.csv"
    path.write_text("level_1,level_2\n" + "".join(f"Town,r{leaf}\n" for leaf in range(7)))
    hierarchy = TablesHierarchy(
        regions=File.read(path),
        attributes={"age": ("child", "adult", "old"), "tenure": ("owned", "rented")},
        tables={"people": CountTable(by=()), "age": CountTable(by=("age",)), "both": CountTable(by=("age", "tenure"))},
        exact=exact,
    )
    design = TablesDesign.of(TablesProblem(hierarchy=hierarchy, privacy=privacy), "problem.toml")
    rng = np.random.default_rng(3)
    splits = [(as_split(rng.dirichlet([1, 1])), as_split(rng.dirichlet([1, 1, 1]))) for _ in range(6)]
    levels, tables = (np.array([[float(part) for part in split[block]] for split in splits]) for block in (0, 1))
    single = [forecast_errors(design.with_split(*split)) for split in splits]
    # Scales of parts are rounded so that they can be drawn.
    np.testing.assert_allclose(design.forecast_splits(levels, tables), single, rtol=1e-4)
