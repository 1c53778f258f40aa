"""The split of the budget that solve finds if the file has none, and what it says of a file's own."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from helpers.command import run
from helpers.mended_sums import mend

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

PROBLEM = """[hierarchy]
regions = "regions.csv"
records = "records.csv"
attributes.age = ["child", "adult", "old"]
tables.people.by = []
tables.age.by = ["age"]
{extra}
[privacy]
epsilon = 1.0
"""


@pytest.fixture
def town(tmp_path):
    leaves = [f"r{number}" for number in range(4)]
    (tmp_path / "regions.csv").write_text("level_1,level_2\n" + "".join(f"Town,{leaf}\n" for leaf in leaves))
    rows = [f"Town,{leaf},{age},{30 + 7 * n}" for n, leaf in enumerate(leaves) for age in ("child", "adult", "old")]
    (tmp_path / "records.csv").write_text("\n".join(["level_1,level_2,age,count", *rows]))
    return tmp_path


def write(folder, extra=""):
    path = folder / "problem.toml"
    path.write_text(PROBLEM.format(extra=extra))
    return path


def test_default_is_the_split_of_plan(town):
    path = write(town)
    release = solve("hierarchical-tables", path, town / "out", Options())
    assert verify(town / "out").complaints == ()
    facts = release.result.details.facts
    assert facts["split"] == "as plan finds it"
    plan = json.loads(run("plan", "hierarchical-tables", path, "--json").stdout)
    assert plan["shares"] == plan["best"]["shares"]
    # The parts of a plan are all tables of a level, then of the next one.
    budgets = [facts["tables"][name]["budgets"][level] for level in range(2) for name in ("people", "age")]
    for budget, share in zip(budgets, plan["shares"], strict=True):
        assert Fraction(budget) == pytest.approx(float(Fraction(share)), abs=1e-5)
    assert not any("wastes" in line for line in release.warnings)


def test_verify_holds_noise_to_the_published_split(town):
    folder = solve("hierarchical-tables", write(town), town / "out", Options()).folder
    with np.load(folder / "noisy.npz") as archive:
        arrays = dict(archive)
    levels = [Fraction(text or 0) for text in arrays["split_levels"]]
    assert sum(levels) == 1
    # Noise that is too narrow for its share, beside a share that is made up.
    arrays["split_levels"] = np.array(["1/2", "1/2"])
    np.savez_compressed(folder / "noisy.npz", **arrays)
    mend(folder)
    assert verify(folder).complaints
    arrays["split_levels"] = np.array(["1/2", "1"])
    np.savez_compressed(folder / "noisy.npz", **arrays)
    mend(folder)
    completed = run("verify", folder)
    assert completed.exit_code == 2
    assert "add up to 1" in completed.output


@pytest.mark.parametrize(("extra", "is_wasteful"), [("budget = [1, 1]", True), ("budget = [1, 40]", False)])
def test_says_if_a_split_wastes_much(town, extra, is_wasteful):
    release = solve("hierarchical-tables", write(town, extra + "\ntables.people.share = 0"), town / "out", Options())
    assert release.result.details.facts["split"] == "the problem file's"
    assert any("wastes a part" in line and "% more" in line for line in release.warnings) is is_wasteful


GROUPS = """[hierarchy]
counts = "counts.csv"
sizes = 3
[privacy]
epsilon = 1.0
[hierarchical-dp]
budget = {budget}
"""


@pytest.mark.parametrize(("budget", "is_wasteful"), [("[8, 1, 1]", True), ("[2, 3, 20]", False), ("[0, 0, 1]", False)])
def test_says_if_a_split_of_groups_wastes_much(tmp_path, budget, is_wasteful):
    rows = [f"all,s{k % 2},c{k},{size},{50 + k}" for k in range(6) for size in (1, 2, 3)]
    (tmp_path / "counts.csv").write_text("\n".join(["level_1,level_2,level_3,size,groups", *rows]))
    (tmp_path / "problem.toml").write_text(GROUPS.format(budget=budget))
    release = solve("hierarchical-dp", tmp_path / "problem.toml", tmp_path / "out", Options())
    waste = [line for line in release.warnings if "wastes a part" in line]
    assert bool(waste) is is_wasteful
    assert all("the method's own split" in line and "% more" in line for line in waste)
