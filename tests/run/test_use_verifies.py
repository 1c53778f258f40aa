"""Using a folder checks it first: what does not hold is refused, what was checked is remembered."""

import json
import os
import shutil

import pytest
from helpers.mended_sums import edit

from privopt.errors import DoesNotHoldError
from privopt.report.write_report import write_figures, write_report
from privopt.run import verify as module
from privopt.run import verify_cache as remembered
from privopt.run.audit import audit
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import open_verified, verify


@pytest.fixture
def forged(solved_toy, tmp_path):
    """Return a DIR whose epsilon was made smaller, with sums to fit."""
    folder = shutil.copytree(solved_toy, tmp_path / "forged")
    return edit(folder, lambda r: r["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))


@pytest.mark.parametrize(
    "use", [audit, write_report, open_verified, lambda folder: write_figures(folder, folder.parent / "figures")]
)
def test_a_forged_folder_is_refused_by_all_that_use_it(forged, use):
    with pytest.raises(DoesNotHoldError, match=r"guarantee\.epsilon"):
        use(forged)
    assert not (forged / "report.html").exists()


def test_the_command_line_ends_with_1_and_draws_nothing(forged, privopt):
    for command in (["sample", forged, "--input", "p1"], ["audit", forged], ["report", forged]):
        done = privopt(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not hold" in done.stderr


@pytest.fixture
def count(monkeypatch, tmp_path):
    """How often a folder was really checked, with an empty memory."""
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "memory"))
    calls = []
    real = module.verify
    monkeypatch.setattr(module, "verify", lambda folder, **options: calls.append(folder) or real(folder, **options))
    return calls


def test_a_folder_that_holds_is_checked_once_until_a_byte_changes(solved_toy, tmp_path, count):
    folder = tmp_path / "out"
    shutil.copytree(solved_toy, folder)
    assert open_verified(folder).verdict == "proved"
    assert open_verified(folder).verdict == "proved"
    moved = folder.rename(tmp_path / "moved")
    assert open_verified(moved).verdict == "proved"
    assert len(count) == 1
    (moved / "problem" / "prior.csv").write_text("id,p\n")
    with pytest.raises(DoesNotHoldError, match=r"prior\.csv: changed"):
        open_verified(moved)


def test_another_version_checks_again(solved_toy, count, monkeypatch):
    open_verified(solved_toy)
    monkeypatch.setattr(remembered, "VERSION", "0.0.1")
    open_verified(solved_toy)
    assert len(count) == 2


def test_another_version_of_a_plugin_that_brings_a_distance_checks_again(solved_toy, count, monkeypatch):
    from attrs import evolve

    from privopt.registry import registry

    open_verified(solved_toy)
    known = registry()
    newer = [evolve(kind, version="9.9") for kind in known.of("distance").values()]
    monkeypatch.setattr(remembered, "registry", lambda: known.replace(*newer))
    open_verified(solved_toy)
    assert len(count) == 2


def test_a_memory_of_somebody_elses_or_that_is_a_pipe_is_not_believed(solved_toy, tmp_path, count, monkeypatch):
    assert open_verified(solved_toy).verdict == "proved"
    (place,) = (tmp_path / "memory" / "held").iterdir()
    with monkeypatch.context() as other:
        other.setattr(remembered.os, "geteuid", lambda: 12345)
        assert remembered.recall(solved_toy) is None
    place.unlink()
    os.mkfifo(place)
    assert open_verified(solved_toy).verdict == "proved"
    assert len(count) == 2


def test_a_memory_that_cannot_be_written_or_read_only_costs_time(solved_toy, tmp_path, count, monkeypatch):
    (tmp_path / "memory").write_text("no folder")
    assert [open_verified(solved_toy).verdict for _ in range(2)] == ["proved"] * 2
    assert len(count) == 2


def test_the_memory_is_the_users_own_and_forgets_what_it_cannot_read(solved_toy, tmp_path, count):
    assert open_verified(solved_toy).verdict == "proved"
    held = tmp_path / "memory" / "held"
    assert held.stat().st_mode & 0o777 == 0o700
    for path in held.iterdir():
        path.write_text("certainly")
    assert open_verified(solved_toy).verdict == "proved"
    assert len(count) == 2


def test_what_is_seeded_is_marked_in_the_same_words_everywhere(tmp_path, privopt, example):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["hierarchical-dp"].write(tmp_path / "problem")
    done = privopt("solve", "hierarchical-dp", problem, "--out", tmp_path / "out", "--seed", "3")
    assert "seeded, not private" in done.stderr
    for command in ("verify", "audit", "report"):
        done = privopt(command, tmp_path / "out")
        assert "seeded, not private" in done.stdout + done.stderr
        assert done.returncode == (6 if command == "verify" else 0)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "seeded, not private" in page
    assert '"badge good"' not in page


def test_kind_none_ends_with_6_and_is_marked(tmp_path, privopt, example):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["fl-linear"].write(tmp_path / "problem")
    folder = solve("fl-linear", problem, tmp_path / "out", Options(method="optimal", allow_unsafe=True)).folder
    assert verify(folder).verdict == "none"
    done = privopt("verify", folder)
    assert (done.returncode, done.stdout.split()[0]) == (6, "none")
    assert "no privacy guarantee" in privopt("report", folder).stderr


def test_require_proved_is_not_met_by_a_declaration(example, solved_toy, privopt):
    assert privopt("verify", solved_toy, "--require", "proved").returncode == 0
    folder = example("hierarchical-dp")
    assert privopt("verify", folder).returncode == 0
    done = privopt("verify", folder, "--require", "proved", "--json")
    assert done.returncode == 6
    found = json.loads(done.stdout)
    assert (found["verdict"], found["complaints"], found["certificate"]["evidence"]) == ("declared", [], "declared")


@pytest.mark.parametrize("name", ["hierarchical-dp", "fl-linear"])
@pytest.mark.usefixtures("undrawn")
def test_a_folders_name_is_no_pattern(example, tmp_path, name):
    """Tables in it are read under their own names, not as globs."""
    folder = tmp_path / "o[1]*"
    shutil.copytree(example(name), folder)
    write_report(folder)
    assert verify(folder).verdict is not None
