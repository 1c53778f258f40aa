"""A short form of the campaign: a sample of each part. ``python tests/campaign/run.py`` runs the whole."""

import random
import shutil
from pathlib import Path

import pytest
from forge import forged
from inputs import spoiled
from problems import PROBLEMS
from shocks import dead_solvers, full_disks, kills, odd_places
from spoil import bad_inputs, tamper_with_folders
from trials import Ended, spread
from verdicts import Campaign, compare_cases

from privopt.registry import registry

on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes through /proc")


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (bad_inputs, 10),
        pytest.param(bad_inputs, 50, marks=pytest.mark.slow),
        pytest.param(tamper_with_folders, 12, marks=pytest.mark.slow),
        pytest.param(forged, 30, marks=pytest.mark.slow),
        pytest.param(full_disks, 2, marks=pytest.mark.slow),  # test_publish.py raises such errors
        pytest.param(kills, 1, marks=[on_linux, pytest.mark.slow]),
        pytest.param(dead_solvers, 1, marks=[on_linux, pytest.mark.slow]),
        pytest.param(odd_places, 3, marks=pytest.mark.slow),
    ],
)
def test_sample_finds_nothing(part, count, tmp_path):
    tally = part(tmp_path, random.Random(f"0 {part.__name__}"), count)
    assert tally.findings == []
    assert tally.tried >= count


def test_covers_every_mechanism():
    assert {problem.mechanism for problem in PROBLEMS} >= set(registry().mechanisms) - {"ranked-response", "acme-mech"}


def test_campaign_is_large():
    names = [(spoiled_problem.given.mechanism, spoiled_problem.name) for spoiled_problem in spoiled(random.Random(0))]
    assert len(names) > 3000


def test_finds_what_it_looks_for():
    clear = "p.toml: privacy.epsilon: expected a number above 0 (1/km), got -1"
    assert Ended(code=2, out="", err=clear).faults([0, 2]) == []
    assert Ended(code=5, out="", err=clear).faults([0, 2])
    assert Ended(code=2, out="", err="").faults([2])
    assert Ended(code=2, out="", err="x" * 2000).faults([2])
    assert Ended(code=2, out="", err="a\x1b[2J\n").faults([2])
    assert Ended(code=2, out="", err="Traceback (most recent call last)\n").faults([2])
    assert Ended(code=None, out="", err="", raised="KeyError").faults([0])
    assert spread(list(range(10)), 3) == [0, 4, 9]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="pages are asked by node")
def test_programs_agree_on_problems_and_forgeries(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "cache"))
    campaign = Campaign(tmp_path, [])
    cases = [case for number in (1, 3, 6, 8) for case in campaign.problem(number, 3)]
    campaign.end()
    assert {"claims", "arrays"} & {case["kind"] for case in cases}
    assert compare_cases(cases, [])[1] == []


def test_finds_verdicts_that_differ():
    solved = {"verify": 0, "checker": 0, "page": "holds", "verify old": 0, "checker old": 0}

    def differing_cases(**verdicts):
        cases = [("as solved", solved), ("claims", {name.replace("_", " "): code for name, code in verdicts.items()})]
        case_records = [{"number": 0, "kind": kind, "name": "", "verdicts": codes} for kind, codes in cases]
        return [line.partition(":")[0] for line in compare_cases(case_records, ["old"])[1]]

    assert differing_cases(verify=1, checker=2, page="does not hold", verify_old=2, checker_old=1) == []
    assert differing_cases(verify=1, checker=0) == ["differ"]
    assert differing_cases(verify=1, checker=1, page="holds") == ["differ"]
    assert differing_cases(verify=1, checker=1, verify_old=0, checker_old=1) == ["refused now"]
    assert differing_cases(verify=0, checker=0, verify_old=1, checker_old=0) == ["accepted now"]
