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
    def copy_folder(name, *, secretive=False, to="out"):
        shutil.copytree(example(name, secretive=secretive), tmp_path / to)
        return tmp_path / to

    return copy_folder


def numbers(text):
    """Every whole number that a page shows or holds, thousands parted or not."""
    plain_numbers = re.findall(r"(?<![\d.])\d+(?!\d|\.\d)", text)
    parted = re.findall(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|\.\d)", text)
    return set(plain_numbers) | {number.replace(",", "") for number in parted}


def test_finds_numbers_in_any_form():
    text = "<td>81,233</td> [82411,83597] x=84761. 1.85933 858119 <b>87119"
    assert numbers(text) >= {"81233", "82411", "83597", "84761", "87119"}
    assert not numbers(text) & {"85933", "58119"}


def public_text(folder):
    return (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize("name", SECRETIVE)
def test_public_report_shows_no_true_count(name, folder):
    """Neither before nor after the owner looked, and the owner's page goes into private/ alone."""
    folder_path = folder(name, secretive=True)
    assert write_report(folder_path, truth=True) == folder_path / "private" / "report.html"
    assert not (folder_path / "report.html").exists()
    owner = (folder_path / "private" / "report.html").read_text("utf-8")
    assert "in private/" in owner
    assert "The truth" in owner
    true = (folder_path / "private" / "counts.csv", folder_path / "private" / "truth.json")
    secrets = {n for path in true if path.is_file() for n in numbers(path.read_text()) if len(n) > 4}
    assert numbers(owner) & secrets, "the owner's page compares with nothing"
    write_report(folder_path)
    assert not numbers(public_text(folder_path)) & set(SECRETIVE[name].secrets)
    assert "The truth" not in public_text(folder_path)


@first_alone("name", PRIVATE)
def test_report_is_equal_without_private(name, folder, monkeypatch):
    """Nothing computed from private/ can be in a page that comes out alike without it; nor is any line or value."""
    full_folder, published = folder(name), folder(name, to="published")
    assert (full_folder / "private").is_dir()
    shutil.rmtree(published / "private")
    write_report(full_folder)
    if name == "lr-geo":  # its guarantee cannot be checked without private/, so that nothing is made of it
        with pytest.raises(InputError, match="private"):
            write_report(published)
        monkeypatch.setattr("privopt.report.write_report.open_verified", lambda folder, **_: load_release(folder))
    write_report(published)
    text = public_text(full_folder)
    assert text == public_text(published)
    for path in (full_folder / "private").rglob("*"):
        if path.suffix == ".csv":
            assert not [line for line in path.read_text("utf-8").splitlines()[1:] if line in text]
        if path.suffix == ".npz":
            with np.load(path) as archive:
                weights = archive["weights"]
            with np.load(full_folder / "mechanism.npz") as archive:
                public_weights = set(archive["weights"].ravel().tolist())
            private_weights = [w for w in weights.ravel().tolist() if w not in public_weights]
            assert private_weights
            assert not [w for w in private_weights if str(w) in text or f"{w / 2**63!r}" in text]


@pytest.mark.parametrize("name", ["optimal-lp", "lr-geo", "photo-censor"])
def test_says_if_there_is_nothing_to_compare(name, folder):
    from privopt.errors import UsageError

    folder_path = folder(name)
    with pytest.raises(UsageError, match="--truth"):
        write_report(folder_path, truth=True)
    assert not (folder_path / "report.html").exists()
