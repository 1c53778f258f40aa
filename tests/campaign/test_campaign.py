"""A short form of the campaign: a sample of each part. ``python tests/campaign/run.py`` runs the whole."""

import random
from pathlib import Path

import pytest
from forge import forged
from inputs import spoiled
from problems import PROBLEMS
from shocks import dead_solvers, full_disks, kills, odd_places
from spoil import bad_inputs, tampered
from trials import Ended, spread

from privopt.registry import registry

on_linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes through /proc")


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (bad_inputs, 20),
        pytest.param(bad_inputs, 50, marks=pytest.mark.slow),
        pytest.param(tampered, 12, marks=pytest.mark.slow),
        pytest.param(forged, 30, marks=pytest.mark.slow),
        (full_disks, 2),
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
