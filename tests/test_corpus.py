"""Forged folders: verify and the checker refuse each, and agree on it."""

from pathlib import Path

import pytest
from forgeries import BASES, forge, forgeries, make

from privopt import checker
from privopt.errors import PrivoptError
from privopt.run.verify import verify

LEAST = 60
"""Forgeries of each folder, at least: more than 300 in all."""


def ends(folder) -> int:
    """The exit code of verify."""
    try:
        verdict = verify(folder).verdict
    except PrivoptError:
        return 2
    return {None: 1, "none": 6}.get(verdict, 0)


def test_the_page_says_how_many_there_are(tmp_path):
    count = sum(len(list(forgeries(base, make(base, tmp_path / base)))) for base in BASES)
    page = (Path(__file__).parents[1] / "docs" / "reference" / "proof.md").read_text("utf-8")
    assert f"{count:,} forged folders, {len(BASES)} problems changed" in page, count


@pytest.mark.parametrize("base", BASES)
def test_both_refuse_every_forgery(tmp_path, base):
    folder = make(base, tmp_path)
    assert (ends(folder), checker.check(folder, str)) == (0, 0)
    wrong, number = [], 0
    for number, forgery in enumerate(forgeries(base, folder)):
        forged = forge(folder, forgery, tmp_path / f"forged-{number}")
        found = (ends(forged), checker.check(forged, str))
        if found[0] in (0, 6) or found[1] in (0, 6):
            wrong.append((forgery.name, *found))
    assert wrong == []
    assert number + 1 >= LEAST
