"""What stands in a report is public: it does not depend on private/, and no true count is in it."""

import re
import shutil

import numpy as np
import pytest
from helpers.examples import SECRETIVE
from helpers.grids import first_alone

from privopt.errors import InputError
from privopt.report.write_report import write_report
from privopt.run.verify import load_release

PRIVATE = ("lr-geo", "fl-linear", "hierarchical-dp")
"""The mechanisms whose DIR has private/; the kit compares the reports of those that add noise."""


@pytest.fixture
def folder(example, tmp_path):
    def copied(name, *, secretive=False, to="out"):
        shutil.copytree(example(name, secretive=secretive), tmp_path / to)
        return tmp_path / to

    return copied


def numbers(text):
    """Every whole number that a page shows or holds, thousands parted or not."""
    plain = re.findall(r"(?<![\d.])\d+(?!\d|\.\d)", text)
    parted = re.findall(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|\.\d)", text)
    return set(plain) | {found.replace(",", "") for found in parted}


def test_numbers_are_found_however_they_are_written():
    text = "<td>81,233</td> [82411,83597] x=84761. 1.85933 858119 <b>87119"
    assert numbers(text) >= {"81233", "82411", "83597", "84761", "87119"}
    assert not numbers(text) & {"85933", "58119"}


def public_text(folder):
    return (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("name", SECRETIVE)
def test_no_true_count_is_in_the_public_report(name, folder):
    """Neither before nor after the owner looked, and the owner's page goes into private/ alone."""
    out = folder(name, secretive=True)
    assert write_report(out, truth=True) == out / "private" / "report.html"
    assert not (out / "report.html").exists()
    owner = (out / "private" / "report.html").read_text("utf-8")
    assert "keep it in private/" in owner
    assert "The truth" in owner
    true = (out / "private" / "counts.csv", out / "private" / "truth.json")
    secrets = {n for path in true if path.is_file() for n in numbers(path.read_text()) if len(n) > 4}
    assert numbers(owner) & secrets, "the owner's page compares with nothing"
    write_report(out)
    assert not numbers(public_text(out)) & set(SECRETIVE[name].secrets)
    assert "The truth" not in public_text(out)


@first_alone("name", PRIVATE)
def test_a_report_is_the_same_without_private(name, folder, monkeypatch):
    """Nothing computed from private/ can be in a page that comes out alike without it; nor is any line or value."""
    whole, published = folder(name), folder(name, to="published")
    assert (whole / "private").is_dir()
    shutil.rmtree(published / "private")
    write_report(whole)
    if name == "lr-geo":  # its guarantee cannot be checked without private/, so that nothing is made of it
        with pytest.raises(InputError, match="private"):
            write_report(published)
        monkeypatch.setattr("privopt.report.write_report.open_verified", lambda folder, **_: load_release(folder))
    write_report(published)
    text = public_text(whole)
    assert text == public_text(published)
    for path in (whole / "private").rglob("*"):
        if path.suffix == ".csv":
            assert not [line for line in path.read_text("utf-8").splitlines()[1:] if line in text]
        if path.suffix == ".npz":
            with np.load(path) as archive:
                weights = archive["weights"]
            with np.load(whole / "mechanism.npz") as archive:
                known = set(archive["weights"].ravel().tolist())
            own = [w for w in weights.ravel().tolist() if w not in known]
            assert own
            assert not [w for w in own if str(w) in text or f"{w / 2**63!r}" in text]


@pytest.mark.parametrize("name", ["optimal-lp", "lr-geo", "photo-censor"])
def test_nothing_to_compare_is_said_so(name, folder):
    from privopt.errors import UsageError

    out = folder(name)
    with pytest.raises(UsageError, match="--truth"):
        write_report(out, truth=True)
    assert not (out / "report.html").exists()
