"""Estimates of a crowd's answers from noisy ones, which any mechanism that releases a matrix has without more code."""

import random

import pytest

import privopt as po


def test_estimates_the_shares_of_answers(tmp_path):
    ranks = ["never", "seldom", "often"]
    (tmp_path / "question.toml").write_text(
        '[attribute]\nranks = ["never", "seldom", "often"]\n[privacy]\nepsilon = 2.0\n'
    )
    release = po.solve("ranked-response", tmp_path / "question.toml", method="warner")
    draw = random.Random(3)
    reports = [release.sample(draw.choices(ranks, [6, 3, 1])[0])[0] for _ in range(400)]
    estimated = release.estimate(reports)
    assert estimated.shares.sum() == pytest.approx(1)
    assert estimated.shares[0] > 0.4
    assert estimated.low[0] <= 0.6 <= estimated.high[0]
