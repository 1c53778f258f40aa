"""Prediction loses less than half of what independent reports do at the same total, over stays in a small town."""

import numpy as np
from helpers.kept_reports import compared, grid_streets, walks

SIDE, KM = 7, 1.0


def test_stays_cost_half_of_what_independent_reports_do(tmp_path):
    streets, ends = grid_streets(SIDE, KM)
    rows = "\n".join(f"{tail},{head},{KM}" for tail, head in ends)
    (tmp_path / "roads.csv").write_text(f"from,to,km\n{rows}\n")
    (tmp_path / "points.csv").write_text("id\n" + "\n".join(str(n) for n in range(SIDE**2)) + "\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        '[utility]\nkind = "distance"\n[privacy]\nepsilon = 2\n[predictive]\n'
    )
    walk = walks(streets, 40, 4, 60, 1.0, np.random.default_rng(1))
    found = compared(tmp_path, text, np.arange(SIDE**2), walk, every=(1, 2), gap=1e-3)
    assert found.fresh < 0.05
    assert found.independent[0] <= found.even[0] < found.constant
    assert found.predicted[0] <= 0.3 * found.independent[0]
    assert found.predicted[1] <= 0.3 * found.independent[1]
