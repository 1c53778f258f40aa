"""Small cases whose optimum is known."""

import json
import math
from pathlib import Path

import pytest

from privopt.run.solve import solve
from privopt.run.task import Options


def loss(folder, method, ranks, epsilon):
    """Return the objective of a question whose answers are equally likely."""
    file = Path(folder) / "question.toml"
    file.write_text(f"[attribute]\nranks = {json.dumps(ranks)}\n[privacy]\nepsilon = {epsilon}\n")
    release = solve("ranked-response", file, Path(folder) / method, Options(method=method))
    return release.result.objective.value


def test_two_answers_match_warner(tmp_path):
    """With two answers nothing beats the coin: the error is 1 / (1 + e^epsilon)."""
    for method in ("optimal", "warner"):
        assert loss(tmp_path, method, ["no", "yes"], 1.0) == pytest.approx(1 / (1 + math.e), rel=1e-6)


def test_order_matters(tmp_path):
    """With five ranks and little privacy budget, errors can be kept small by answering near the middle."""
    ranks = ["never", "seldom", "sometimes", "often", "always"]
    assert loss(tmp_path, "optimal", ranks, 0.5) < 0.9 * loss(tmp_path, "warner", ranks, 0.5)
