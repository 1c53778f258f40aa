"""The report's figures: shares that add up, errors to expect that occur."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release
from privopt_hierarchical_dp.mechanism import HierarchicalDP
from privopt_hierarchical_dp.report import CountsReport, size_figure


def _counts(folder, spread, seed=1, states=6, counties=12, sizes=12, groups=200_000):
    """Counties whose log odds of each size differ by ``spread`` around the nation's."""
    rng = np.random.default_rng(seed)
    base_odds = np.array([0.27, 0.33, 0.16, 0.13, 0.065, 0.026, *(0.02 * 0.5**k for k in range(sizes - 6))])
    lines = ["level_1,level_2,level_3,size,groups"]
    people = rng.lognormal(0.0, 1.2, states * counties)
    for index, number in enumerate(rng.multinomial(groups, people / people.sum())):
        odds = base_odds * np.exp(rng.normal(0.0, spread, sizes))
        path = f"US,S{index // counties},C{index}"
        lines += [f"{path},{s},{n}" for s, n in enumerate(rng.multinomial(number, odds / odds.sum()), start=1)]
    (folder / "c.csv").write_text("\n".join(lines) + "\n")
    path = folder / "p.toml"
    path.write_text(f'[hierarchy]\ncounts = "c.csv"\nsizes = {sizes}\n[privacy]\nepsilon = 0.1\n')
    return path


def _open_release(folder):
    release = load_release(folder)
    return release.problem, release.release, release.result


def test_shares_of_epsilon_are_fractions(tmp_path):
    path = _counts(tmp_path, 0.1, groups=500)
    solve("hierarchical-dp", path, tmp_path / "out", Options())
    sections = CountsReport(HierarchicalDP()).report(*_open_release(tmp_path / "out"))
    assert {"Groups by size", "Groups by size: every region"} <= {section.title for section in sections}
    page = "".join(section.html for section in sections).replace("\u00a0%", " %")
    rows = re.findall(r"<tr>(.*?)</tr>", page[page.index("share of epsilon") :], re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]
    levels = [row for row in cells if len(row) > 6 and row[5].endswith(" %")]
    width = json.loads((tmp_path / "out" / "result.json").read_text())["details"]["tables"]["groups by size"][
        "mean_width_by_level"
    ]
    assert [float(row[-1]) for row in levels] == pytest.approx(width, rel=5e-3)  # three digits
    leads = "".join(section.lead for section in sections)
    assert "and in intervals.csv, contains the true count with" in page + leads
    assert [row[5] for row in levels] == ["8 %", "12 %", "80 %"]
    assert [float(row[4]) for row in levels] == [0.008, 0.012, 0.08]
    assert [round(float(row[6])) for row in levels] == [125, 83, 12]


def test_sizes_are_whole_numbers_on_the_axis(tmp_path):
    path = tmp_path / "p.toml"
    (tmp_path / "c.csv").write_text("level_1,size,groups\nA,1,300\nA,2,500\n")
    path.write_text('[hierarchy]\ncounts = "c.csv"\nsizes = 2\n[privacy]\nepsilon = 0.1\n')
    folder = solve("hierarchical-dp", path, tmp_path / "out", Options(seed=1)).folder
    axes = size_figure(_open_release(folder)[1]).axes[0]
    assert all(tick == round(tick) for tick in axes.get_xticks())
