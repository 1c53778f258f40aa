"""A short form of the campaign: a sample of each part. ``python tests/campaign/run.py`` runs the whole."""

import random
import shutil
from pathlib import Path

import pytest
from forge import forged
from inputs import spoiled
from problems import PROBLEMS
from shocks import dead_solvers, full_disks, kills, odd_places
from spoil import bad_inputs, tampered
from trials import Ended, spread
from verdicts import Campaign, compared

from privopt.registry import registry

on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes through /proc")


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (bad_inputs, 10),
        pytest.param(bad_inputs, 50, marks=pytest.mark.slow),
        pytest.param(tampered, 12, marks=pytest.mark.slow),
        pytest.param(forged, 30, marks=pytest.mark.slow),
        pytest.param(full_disks, 2, marks=pytest.mark.slow),  # test_publish.py raises such errors
        pytest.param(kills, 1, marks=[on_linux, pytest.mark.slow]),
        pytest.param(dead_solvers, 1, marks=[on_linux, pytest.mark.slow]),
        pytest.param(odd_places, 3, marks=pytest.mark.slow),
    ],
)
def test_a_sample_finds_nothing(part, count, tmp_path):
    tally = part(tmp_path, random.Random(f"0 {part.__name__}"), count)
    assert tally.findings == []
    assert tally.tried >= count


def test_every_mechanism_is_in_it():
    assert {given.mechanism for given in PROBLEMS} >= set(registry().mechanisms) - {"ranked-response", "acme-mech"}


def test_it_is_large():
    names = [(one.given.mechanism, one.name) for one in spoiled(random.Random(0))]
    assert len(names) > 3000


def test_what_it_looks_for_is_found():
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
def test_verify_checker_and_page_agree_on_problems_and_forgeries(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVOPT_CACHE", str(tmp_path / "cache"))
    campaign = Campaign(tmp_path, [])
    cases = [case for number in (1, 3, 6, 8) for case in campaign.problem(number, 3)]
    campaign.end()
    assert {"claims", "arrays"} & {case["kind"] for case in cases}
    assert compared(cases, [])[1] == []


def test_verdicts_that_differ_are_found():
    solved = {"verify": 0, "checker": 0, "page": "holds", "verify old": 0, "checker old": 0}

    def told(**verdicts):
        cases = [("as solved", solved), ("claims", {name.replace("_", " "): code for name, code in verdicts.items()})]
        made = [{"number": 0, "kind": kind, "name": "", "verdicts": found} for kind, found in cases]
        return [line.partition(":")[0] for line in compared(made, ["old"])[1]]

    assert told(verify=1, checker=2, page="does not hold", verify_old=2, checker_old=1) == []
    assert told(verify=1, checker=0) == ["differ"]
    assert told(verify=1, checker=1, page="holds") == ["differ"]
    assert told(verify=1, checker=1, verify_old=0, checker_old=1) == ["refused now"]
    assert told(verify=0, checker=0, verify_old=1, checker_old=0) == ["accepted now"]
