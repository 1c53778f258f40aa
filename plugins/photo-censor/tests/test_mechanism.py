from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.mended_sums import mend

from privopt import checker
from privopt.errors import InfeasibleError, InputError, StoppedError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify


def album(rng, photos=10, places=8, true=2):
    scores = np.log(rng.dirichlet(np.ones(places), photos))
    scores[:, true] += 1.5
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


@pytest.fixture
def problem(tmp_path):
    scores = album(np.random.default_rng(3))
    np.save(tmp_path / "scores.npy", scores)
    np.save(tmp_path / "p.npy", np.exp(scores))

    def write(photos='scores = "scores.npy"', privacy="top_k = 3", true="true_location = 2"):
        path = tmp_path / "album.toml"
        path.write_text(f"[photos]\n{photos}\n{true}\n[privacy]\n{privacy}\n")
        return path

    return write


@pytest.mark.parametrize("method", ["optimal", "greedy"])
@pytest.mark.parametrize("privacy", ["top_k = 3", "deletion_budget = 4\nmargin = 0.2"])
def test_solve_writes_what_verify_holds(problem, tmp_path, method, privacy):
    out = tmp_path / "out"
    solved = solve("photo-censor", problem(privacy=privacy), out, Options(method=method))
    found = verify(out)
    assert found.verdict == "proved"
    result = json.loads((out / "result.json").read_text())
    details = result["details"]
    assert result["guarantee"]["kind"] == "top-k"
    assert result["status"] == ("optimal" if method != "greedy" else solved.result.status)
    assert details["rank_after"] == details["protected_k"] + 1
    assert details["rank_before"] == 1
    rows = (out / "deletions.csv").read_text().splitlines()
    assert sum(row.endswith(",1") for row in rows[1:]) == details["deleted"]
    value = result["objective"]["value"]
    if "top_k" in privacy:
        assert value == details["deleted"] >= result["objective"]["lower_bound"]
        assert details["protected_k"] >= 3
    else:
        assert value == details["protected_k"] <= result["objective"]["lower_bound"]
        assert result["objective"]["gap"] == result["objective"]["lower_bound"] - value
        assert details["deleted"] <= 4


def test_probabilities_csv_and_npy_say_the_same(problem, tmp_path):
    scores = np.load(tmp_path / "scores.npy")
    header = ",".join(f"place {j}" for j in range(scores.shape[1]))
    lines = [",".join(map(repr, row)) for row in scores.tolist()]
    (tmp_path / "scores.csv").write_text("\n".join([header, *lines]) + "\n")
    named = [f"IMG{n}.jpg,{line}" for n, line in enumerate(lines)]
    (tmp_path / "named.csv").write_text("\n".join(["photo," + header, *named]) + "\n")
    sources = ['scores = "scores.npy"', 'probabilities = "p.npy"', 'scores = "scores.csv"']
    sources.append('scores = "named.csv"\nkeep = ["IMG6.jpg"]')
    found = [solve("photo-censor", problem(s), tmp_path / f"out{n}").result for n, s in enumerate(sources)]
    assert len({r.objective.value for r in found[:3]}) == 1
    rows = (tmp_path / "out3" / "deletions.csv").read_text().splitlines()
    assert "IMG6.jpg,0" in rows
    assert verify(tmp_path / "out3").complaints == ()


def test_probability_zero_is_minus_infinity(problem, tmp_path):
    p = np.load(tmp_path / "p.npy").copy()
    p[0, 5] += p[0, 2]
    p[0, 2] = 0.0
    np.save(tmp_path / "p.npy", p)
    result = solve("photo-censor", problem('probabilities = "p.npy"'), tmp_path / "out").result
    assert result.details.facts["deleted"] == 0
    assert result.details.facts["protected_k"] == 7


FAULTS = [
    ({"privacy": "top_k = 8"}, "privacy.top_k: expected at most 7, one less than the 8 locations, got 8"),
    ({"privacy": "top_k = 0"}, "privacy.top_k"),
    ({"privacy": "top_k = 2\ndeletion_budget = 1"}, "top_k and deletion_budget"),
    ({"privacy": "margin = 0.1"}, "one of top_k, deletion_budget"),
    ({"privacy": "top_k = 1\nmargin = -0.1"}, "privacy.margin"),
    ({"privacy": "deletion_budget = -1"}, "privacy.deletion_budget"),
    ({"true": "true_location = 8"}, "photos.true_location: expected a column from 0 to 7, got 8"),
    ({"true": ""}, "photos.true_location: expected the column of the true location, from 0, got nothing"),
    ({"photos": 'scores = "scores.npy"\nkeep = [10]'}, "photos.keep: expected a row from 0 to 9, got 10"),
    ({"photos": 'scores = "scores.npy"\nkeep = [1, 1]'}, "photos.keep: expected photos that differ, got 1 twice"),
    (
        {"photos": 'scores = "scores.npy"\nkeep_at_least = 11'},
        "photos.keep_at_least: expected at most the 10 photos of the album, got 11",
    ),
    ({"photos": 'scores = "scores.npy"\nprobabilities = "p.npy"'}, "scores and probabilities"),
    ({"photos": 'scores = "gone.npy"'}, "photos.scores"),
    ({"photos": 'scores = "scores.npy"\nfolder = "x"'}, "photos"),
]


@pytest.mark.parametrize(("keys", "words"), FAULTS)
def test_bad_keys_are_one_clear_line(problem, tmp_path, keys, words):
    with pytest.raises(InputError) as caught:
        solve("photo-censor", problem(**keys), tmp_path / "out")
    assert caught.value.exit_code == 2
    assert any(words in line for line in str(caught.value).splitlines())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p * 0.9, "row 0 (from 0): expected a sum of 1, got probabilities that sum to 0.9"),
        (lambda p: np.where(p == p.max(), np.nan, p), "nan"),
        (lambda p: p - 0.2, "a probability, at least 0"),
        (lambda p: p[:, :1], "10 photos and 1 locations"),
    ],
)
def test_bad_probabilities(problem, tmp_path, spoil, words):
    np.save(tmp_path / "p.npy", spoil(np.load(tmp_path / "p.npy")))
    path = problem('probabilities = "p.npy"', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(InputError) as caught:
        solve("photo-censor", path, tmp_path / "out")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n-1,x\n", "row 2, column b: expected a number or -inf, got x"),
        ("a,b\n-1,nan\n", "row 2, column b: expected a number or -inf, got nan"),
        ("a,b\n-1\n", "row 2: expected 2 fields, as the header has, got 1 fields"),
        ("a,b\n-1,\n", "row 2, column b: expected a number or -inf, got nothing"),
        ("a,b\n-1,-2,-3\n", "row 2: expected 2 fields, as the header has, got 3 fields"),
        ("a,b\n-1,-1e999\n", "row 2, column b: expected a number or -inf, got -1e999"),
        ("a,b\n-1,-1_0\n", "row 2, column b: expected a number or -inf, got -1_0"),
        ("a,b\n\n-1,-2\n", "row 2, column a: expected a number or -inf, got nothing"),
        ("a,b\n", "no rows below a header"),
        ("a,a,a\n-1,-1,-1\n", "header: expected columns that differ in name, got column 'a' twice"),
        ("photo,a, a,b\nx,-1,-1,-1\n", "header: expected columns that differ in name, got column 'a' twice"),
        ("-1,-2\n-1,-2\n", "row 1: expected a header that names the locations, got numbers"),
        ("photo,a,b\nx,-1,-2\nx,-1,-2\n", "x again"),
        ("photo,a,b\n" + "x" * 200_000 + ",-1,-2\n", "a name of 200,000 characters"),
    ],
)
def test_bad_tables(problem, tmp_path, text, words):
    (tmp_path / "s.csv").write_text(text)
    path = problem('scores = "s.csv"', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(InputError) as caught:
        solve("photo-censor", path, tmp_path / "out")
    assert words in str(caught.value)


@pytest.mark.parametrize("factor", [1, 100])
def test_probabilities_are_no_scores(problem, tmp_path, factor):
    path, shares = tmp_path / "s.npy", np.array([[0.39, 0.61, 0.0], [0.39, 0.2, 0.41]])
    np.save(path, np.log(np.maximum(shares, 1e-9)))
    written = problem('scores = "s.npy"', "top_k = 1", "true_location = 0")
    folder = solve("photo-censor", written, tmp_path / "out").folder
    np.save(path, factor * shares)
    with pytest.raises(
        InputError, match=r"expected log-probabilities.*photos\.probabilities.*, got .*whose rows sum to 1(00)?"
    ):
        solve("photo-censor", written, tmp_path / "other")
    (folder / "problem/s.npy").write_bytes(path.read_bytes())
    mend(folder)
    with pytest.raises(InputError, match="whose rows sum to"):
        verify(folder)
    said = list[str]()
    assert checker.check(folder, said.append) == 2
    assert "scores or copies: odd" in said[-1]


def test_scores_above_0_are_warned_of(problem, tmp_path):
    np.save(tmp_path / "s.npy", album(np.random.default_rng(3)) + 30.0)  # none below 0, as logits may be
    solved = solve("photo-censor", problem('scores = "s.npy"'), tmp_path / "out")
    assert solved.result.objective == solve("photo-censor", problem(), tmp_path / "normal").result.objective
    assert [line for line in solved.warnings if "log-probabilities to 0" in line]
    assert checker.check(solved.folder, lambda line: None) == 0


def test_minus_infinity_in_a_table(problem, tmp_path):
    (tmp_path / "s.csv").write_text("a,b\n-1,-inf\n-2,-1\n")
    path = problem('scores = "s.csv"', privacy="top_k = 1", true="true_location = 0")
    assert solve("photo-censor", path, tmp_path / "out").result.details.facts["deleted"] == 1


def test_every_photo_kept_is_infeasible(problem, tmp_path):
    path = problem(f'scores = "scores.npy"\nkeep = {list(range(10))}')
    with pytest.raises(InfeasibleError) as caught:
        solve("photo-censor", path, tmp_path / "out")
    assert caught.value.exit_code == 3
    assert "photos.keep (10 photos) and" in str(caught.value)
    assert "every photo is kept" in str(caught.value)


def test_top_1_takes_top_1_alone(problem, tmp_path):
    with pytest.raises(InputError, match=r"expected top_k = 1 with method top-1.*, got .*top_k = 3"):
        solve("photo-censor", problem(), tmp_path / "out", Options(method="top-1"))
    one = solve("photo-censor", problem(privacy="top_k = 1"), tmp_path / "out", Options(method="top-1")).result
    best = solve("photo-censor", problem(privacy="top_k = 1"), tmp_path / "best").result
    assert one.objective == best.objective


def test_a_time_limit_leaves_a_certified_result_with_its_bound(tmp_path, exposed):
    large = exposed(np.random.default_rng(0), 60, 200)
    np.save(tmp_path / "s.npy", large.scores)
    path = tmp_path / "a.toml"
    path.write_text(f'[photos]\nscores = "s.npy"\ntrue_location = {large.true}\n[privacy]\ntop_k = 40\n')
    solved = solve("photo-censor", path, tmp_path / "out", Options(time_limit=0.01))
    assert solved.stopped
    assert solved.result.status == "feasible"
    assert solved.result.objective.lower_bound < solved.result.objective.value
    assert verify(tmp_path / "out").complaints == ()


def test_a_forged_list_is_found_out(problem, tmp_path):
    solve("photo-censor", problem(), tmp_path / "out")
    table = tmp_path / "out" / "deletions.csv"
    table.write_text(table.read_text().replace(",1", ",0"))
    found = verify(mend(tmp_path / "out"))
    assert found.verdict is None
    complaints = found.complaints
    assert any("protected k is 0, privacy.top_k = 3" in line for line in complaints)


def test_greedy_that_runs_out_says_so(problem, tmp_path):
    scores = np.array([[-0.5, -0.1, -3.0], [-1.0, -3.0, -3.0], [-1.2, -1.3, -3.0]])
    np.save(tmp_path / "s.npy", scores)
    path = problem('scores = "s.npy"\nkeep = [2]', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(StoppedError, match="greedy ran out"):
        solve("photo-censor", path, tmp_path / "out", Options(method="greedy"))
    assert solve("photo-censor", path, tmp_path / "out").result.details.facts["deleted"] == 1
