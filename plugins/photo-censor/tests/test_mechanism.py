from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.mended_sums import mend

from privopt import checker
from privopt.command.terminal import summary
from privopt.errors import InfeasibleError, InputError, StoppedError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
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
def test_solve_and_verify(problem, tmp_path, method, privacy):
    output_folder = tmp_path / "out"
    release = solve("photo-censor", problem(privacy=privacy), output_folder, Options(method=method))
    verification = verify(output_folder)
    assert verification.verdict == "proved"
    result = json.loads((output_folder / "result.json").read_text())
    details = result["details"]
    assert result["guarantee"]["kind"] == "top-k"
    assert result["status"] == ("optimal" if method != "greedy" else release.result.status)
    assert details["rank_after"] == details["protected_k"] + 1
    assert details["rank_before"] == 1
    rows = (output_folder / "deletions.csv").read_text().splitlines()
    assert sum(row.endswith(",1") for row in rows[1:]) == details["deleted"]
    value = result["objective"]["value"]
    if "top_k" in privacy:
        assert value == details["deleted"] >= result["objective"]["lower_bound"]
        assert details["protected_k"] >= 3
    else:
        assert value == details["protected_k"] <= result["objective"]["lower_bound"]
        assert result["objective"]["gap"] == result["objective"]["lower_bound"] - value
        assert details["deleted"] <= 4


def test_warns_of_a_place_that_is_still_a_likely_guess(problem, tmp_path):
    shares = np.array([[0.4, 0.2, 0.4], [0.2, 0.26, 0.54], [0.05, 0.05, 0.9]])
    np.save(tmp_path / "scores.npy", np.log(shares))
    outcome = solve("photo-censor", problem(privacy="top_k = 1", true="true_location = 0"), tmp_path / "out")
    assert not [line for line in outcome.warnings if "the place is now" in line]  # 3 photos: 0.8 %, no likely guess
    np.save(tmp_path / "scores.npy", np.log([[0.464, 0.536]]))
    outcome = solve("photo-censor", problem(privacy="top_k = 1", true="true_location = 0"), tmp_path / "second")
    (line,) = (line for line in outcome.warnings if "the place is now" in line)
    assert line.startswith("the place is now the classifier's second guess, at 46 %, where its best guess has 54 %")
    assert line in outcome.warnings
    write_report(tmp_path / "second")
    assert "second guess, at 46\u00a0%" in (tmp_path / "second" / "report.html").read_text()


def test_summary_names_no_file_of_a_private_folder(problem, tmp_path, capfd):
    outcome = solve("photo-censor", problem(), tmp_path / "out")
    summary(outcome)
    err = capfd.readouterr().err
    assert "private" in err
    assert "published" not in err
    assert "album.toml" not in err


def test_csv_and_npy_probabilities_agree(problem, tmp_path):
    scores = np.load(tmp_path / "scores.npy")
    header = ",".join(f"place {j}" for j in range(scores.shape[1]))
    lines = [",".join(map(repr, row)) for row in scores.tolist()]
    (tmp_path / "scores.csv").write_text("\n".join([header, *lines]) + "\n")
    named_rows = [f"IMG{n}.jpg,{line}" for n, line in enumerate(lines)]
    (tmp_path / "named.csv").write_text("\n".join(["photo," + header, *named_rows]) + "\n")
    sources = ['scores = "scores.npy"', 'probabilities = "p.npy"', 'scores = "scores.csv"']
    sources.append('scores = "named.csv"\nkeep = ["IMG6.jpg"]')
    results = [solve("photo-censor", problem(s), tmp_path / f"out{n}").result for n, s in enumerate(sources)]
    assert len({r.objective.value for r in results[:3]}) == 1
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
    ({"privacy": "top_k = 8"}, "privacy.top_k: expected at most"),
    ({"privacy": "top_k = 0"}, "privacy.top_k"),
    ({"privacy": "top_k = 2\ndeletion_budget = 1"}, "top_k and deletion_budget"),
    ({"privacy": "margin = 0.1"}, "top_k, deletion_budget"),
    ({"privacy": "top_k = 1\nmargin = -0.1"}, "privacy.margin"),
    ({"privacy": "deletion_budget = -1"}, "privacy.deletion_budget"),
    ({"true": "true_location = 8"}, "photos.true_location: expected"),
    ({"true": ""}, "photos.true_location: expected the column"),
    ({"photos": 'scores = "scores.npy"\nkeep = [10]'}, "photos.keep: expected a row"),
    ({"photos": 'scores = "scores.npy"\nkeep = [1, 1]'}, "got 1 twice"),
    (
        {"photos": 'scores = "scores.npy"\nkeep_at_least = 11'},
        "photos.keep_at_least: expected",
    ),
    ({"photos": 'scores = "scores.npy"\nprobabilities = "p.npy"'}, "scores and probabilities"),
    ({"photos": 'scores = "gone.npy"'}, "photos.scores"),
    ({"photos": 'scores = "scores.npy"\nfolder = "x"'}, "photos"),
]


@pytest.mark.parametrize(("keys", "words"), FAULTS)
def test_wrong_keys_are_one_clear_line(problem, tmp_path, keys, words):
    with pytest.raises(InputError) as excinfo:
        solve("photo-censor", problem(**keys), tmp_path / "out")
    assert excinfo.value.exit_code == 2
    assert any(words in line for line in str(excinfo.value).splitlines())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: p * 0.9, "row 0"),
        (lambda p: np.where(p == p.max(), np.nan, p), "nan"),
        (lambda p: p - 0.2, "at least 0"),
        (lambda p: p[:, :1], "10 photos and 1 location"),
    ],
)
def test_refuses_wrong_probabilities(problem, tmp_path, spoil, words):
    np.save(tmp_path / "p.npy", spoil(np.load(tmp_path / "p.npy")))
    path = problem('probabilities = "p.npy"', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(InputError) as excinfo:
        solve("photo-censor", path, tmp_path / "out")
    assert words in str(excinfo.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n-1,x\n", "row 2, column b"),
        ("a,b\n-1,nan\n", "row 2, column b"),
        ("a,b\n-1\n", "row 2: expected"),
        ("a,b\n-1,\n", "row 2, column b"),
        ("a,b\n-1,-2,-3\n", "row 2: expected"),
        ("a,b\n-1,-1e999\n", "row 2, column b"),
        ("a,b\n-1,-1_0\n", "row 2, column b"),
        ("a,b\n\n-1,-2\n", "row 2, column a"),
        ("a,b\n", "no rows"),
        ("a,a,a\n-1,-1,-1\n", "column 'a' twice"),
        ("photo,a, a,b\nx,-1,-1,-1\n", "column 'a' twice"),
        ("-1,-2\n-1,-2\n", "row 1"),
        ("photo,a,b\nx,-1,-2\nx,-1,-2\n", "x again"),
        ("photo,a,b\n" + "x" * 200_000 + ",-1,-2\n", "200,000 characters"),
    ],
)
def test_refuses_wrong_tables(problem, tmp_path, text, words):
    (tmp_path / "s.csv").write_text(text)
    path = problem('scores = "s.csv"', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(InputError) as excinfo:
        solve("photo-censor", path, tmp_path / "out")
    assert words in str(excinfo.value)


@pytest.mark.parametrize("factor", [1, 100])
def test_refuses_probabilities_as_scores(problem, tmp_path, factor):
    path, shares = tmp_path / "s.npy", np.array([[0.39, 0.61, 0.0], [0.39, 0.2, 0.41]])
    np.save(path, np.log(np.maximum(shares, 1e-9)))
    problem_file = problem('scores = "s.npy"', "top_k = 1", "true_location = 0")
    folder = solve("photo-censor", problem_file, tmp_path / "out").folder
    np.save(path, factor * shares)
    with pytest.raises(InputError, match=r"log-probabilities.*photos\.probabilities.*sum to 1(00)?"):
        solve("photo-censor", problem_file, tmp_path / "other")
    (folder / "problem/s.npy").write_bytes(path.read_bytes())
    mend(folder)
    with pytest.raises(InputError, match="rows sum to"):
        verify(folder)
    lines = list[str]()
    assert checker.check(folder, lines.append) == 2
    assert "scores or copies" in lines[-1]


def test_warns_of_positive_scores(problem, tmp_path):
    np.save(tmp_path / "s.npy", album(np.random.default_rng(3)) + 30.0)  # none below 0, as logits may be
    release = solve("photo-censor", problem('scores = "s.npy"'), tmp_path / "out")
    assert release.result.objective == solve("photo-censor", problem(), tmp_path / "normal").result.objective
    assert [line for line in release.warnings if "log-probabilities to 0" in line]
    assert checker.check(release.folder, lambda line: None) == 0


def test_minus_infinity_in_a_table(problem, tmp_path):
    (tmp_path / "s.csv").write_text("a,b\n-1,-inf\n-2,-1\n")
    path = problem('scores = "s.csv"', privacy="top_k = 1", true="true_location = 0")
    assert solve("photo-censor", path, tmp_path / "out").result.details.facts["deleted"] == 1


def test_keeping_every_photo_is_infeasible(problem, tmp_path):
    path = problem(f'scores = "scores.npy"\nkeep = {list(range(10))}')
    with pytest.raises(InfeasibleError) as excinfo:
        solve("photo-censor", path, tmp_path / "out")
    assert excinfo.value.exit_code == 3
    assert "photos.keep (10 photos) and" in str(excinfo.value)
    assert "photo is kept" in str(excinfo.value)


def test_method_top_1_needs_top_k_1(problem, tmp_path):
    with pytest.raises(InputError, match=r"top_k = 1.*top_k = 3"):
        solve("photo-censor", problem(), tmp_path / "out", Options(method="top-1"))
    top_1_result = solve("photo-censor", problem(privacy="top_k = 1"), tmp_path / "out", Options(method="top-1")).result
    best = solve("photo-censor", problem(privacy="top_k = 1"), tmp_path / "best").result
    assert top_1_result.objective == best.objective


def test_time_limit_leaves_a_certified_bound(tmp_path, draw_exposed):
    large = draw_exposed(np.random.default_rng(0), 60, 200)
    np.save(tmp_path / "s.npy", large.scores)
    path = tmp_path / "a.toml"
    path.write_text(f'[photos]\nscores = "s.npy"\ntrue_location = {large.true}\n[privacy]\ntop_k = 40\n')
    release = solve("photo-censor", path, tmp_path / "out", Options(time_limit=0.01))
    assert release.stopped
    assert release.result.status == "feasible"
    assert release.result.objective.lower_bound < release.result.objective.value
    assert verify(tmp_path / "out").complaints == ()


def test_verify_finds_a_forged_list(problem, tmp_path):
    solve("photo-censor", problem(), tmp_path / "out")
    table = tmp_path / "out" / "deletions.csv"
    table.write_text(table.read_text().replace(",1", ",0"))
    verification = verify(mend(tmp_path / "out"))
    assert verification.verdict is None
    complaints = verification.complaints
    assert any("protected k is 0" in line for line in complaints)


def test_greedy_reports_when_it_runs_out(problem, tmp_path):
    scores = np.array([[-0.5, -0.1, -3.0], [-1.0, -3.0, -3.0], [-1.2, -1.3, -3.0]])
    np.save(tmp_path / "s.npy", scores)
    path = problem('scores = "s.npy"\nkeep = [2]', privacy="top_k = 1", true="true_location = 0")
    with pytest.raises(StoppedError, match="greedy ran out"):
        solve("photo-censor", path, tmp_path / "out", Options(method="greedy"))
    assert solve("photo-censor", path, tmp_path / "out").result.details.facts["deleted"] == 1
