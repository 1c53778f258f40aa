"""Problem files: one line a fault, several together, each naming file and key."""

from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest
from attrs import frozen
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare import File, Folder, between, describe_keys, files_of, key, load_problem, positive
from privopt.declare.tables import road_table
from privopt.errors import InputError


@frozen(kw_only=True)
class Random:
    random: int = key(help="how many", check=positive)


@frozen(kw_only=True)
class Privacy:
    epsilon: Fraction = key(help="privacy budget", unit="1/km", check=positive)
    kind: Literal["weak", "strong"] = key("weak", help="which")
    users: tuple[str, ...] | Literal["all"] | Random = key("all", help="who")
    share: float | None = key(None, help="part", check=between(0, 1))
    secret: File | None = key(None, help="counts", secret=True)
    public: File | None = key(None, help="map")
    album: Folder | None = key(None, help="photos")
    deep: bool = key(False, help="whether")
    weights: tuple[float, ...] | None = key(None, help="weights")


@frozen(kw_only=True)
class Problem:
    privacy: Privacy = key(help="the privacy asked for")
    extra: Random | None = key(None, help="more", name="lr-geo")


def load(tmp_path: Path, text: str, **options: object) -> Problem:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return load_problem(Problem, path, **options)


def faults(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as excinfo:
        load(tmp_path, text)
    lines = str(excinfo.value).splitlines()
    assert all(line.startswith("p.toml: ") for line in lines)
    return lines


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ("[privacy]", "privacy.epsilon: expected ... got nothing"),
        ("", "privacy: expected ... got nothing"),
        ("[privacy]\nepsilon = -1", "privacy.epsilon: expected ... got -1"),
        ("[privacy]\nepsilon = 0.0", "privacy.epsilon: expected ... got 0.0"),
        ("[privacy]\nepsilon = nan", "privacy.epsilon: expected ... got NaN"),
        ("[privacy]\nepsilon = inf", "privacy.epsilon: expected ... got Infinity"),
        (
            "[privacy]\nepsilon = 1e400",
            "privacy.epsilon: expected ... got 1E+400",
        ),
        ("[privacy]\nepsilon = '1'", "privacy.epsilon: expected ... got '1'"),
        ("[privacy]\nepsilon = true", "privacy.epsilon: expected ... got true"),
        ("[privacy]\nepsilon = [1]", "privacy.epsilon: expected ... got [1]"),
        ("[privacy]\nepsilon = 1\nkind = 'odd'", "privacy.kind: expected ... 'odd'"),
        (
            "[privacy]\nepsilon = 1\nusers = 3",
            "privacy.users: expected ... got 3",
        ),
        ("[privacy]\nepsilon = 1\nusers = ['a', 2]", "privacy.users: expected"),
        ("[privacy]\nepsilon = 1\nusers = {random = 0}", "privacy.users.random: expected ... got 0"),
        ("[privacy]\nepsilon = 1\nusers = {random = 1.5}", "privacy.users.random: expected ... got 1.5"),
        ("[privacy]\nepsilon = 1\nshare = 1", "privacy.share: expected ... got 1"),
        (
            "[privacy]\nepsilon = 1\nshare = 1e400",
            "privacy.share: expected ... got 1E+400",
        ),
        (
            "[privacy]\nepsilon = 1\npublic = 'no.csv'",
            "privacy.public: expected ... 'no.csv'",
        ),
        (
            "[privacy]\nepsilon = 1\npublic = '.'",
            "privacy.public: expected ... '.', which",
        ),
        ("[privacy]\nepsilon = 1\npublic = 7", "privacy.public: expected ... got 7"),
        ("[privacy]\nepsilon = 1\ndeep = 1", "privacy.deep: expected ... got 1"),
        ("[privacy]\nepsilon = 1\nweights = 1", "privacy.weights: expected ... got 1"),
        (
            "[privacy]\nepsilon = 1\nweights = ['a']",
            "privacy.weights: expected ... position 0",
        ),
        ("[privacy]\nepsilon = 1\nepsilo = 2", "privacy.epsilo: expected ... epsilon, kind, users"),
        ("[privacy]\nepsilon = 1\n[lr-geo]\nrandom = -1", "lr-geo.random: expected ... got -1"),
        ("[privacy]\nepsilon = 1\n[odd]", "odd: expected ... unknown key"),
        ("privacy = 3", "privacy: expected ... got 3"),
        ("[privacy", "expected TOML 1.0 ... not TOML"),
        ("[privacy]\nepsilon = 1\nepsilon = 2", "expected TOML 1.0 ... not TOML"),
    ],
)
def test_each_fault_is_one_line_with_its_key(tmp_path, text, keywords):
    lines = faults(tmp_path, text)
    assert len(lines) == 1
    assert_mentions(lines[0], "p.toml: ", *keywords.split(" ... "))


def test_reports_faults_together(tmp_path):
    text = "odd = 1\n[privacy]\nepsilon = -1\nkind = 'x'\nfoo = 1\n[lr-geo]\nrandom = 'a'"
    assert [line.split()[1] for line in faults(tmp_path, text)] == [
        "privacy.epsilon:", "privacy.kind:", "privacy.foo:", "lr-geo.random:", "odd:",
    ]  # fmt: skip


def test_epsilon_is_the_rational_of_its_text(tmp_path):
    assert load(tmp_path, "[privacy]\nepsilon = 0.1").privacy.epsilon == Fraction(1, 10)
    assert load(tmp_path, "[privacy]\nepsilon = 1e-3").privacy.epsilon == Fraction(1, 1000)
    assert load(tmp_path, "[privacy]\nepsilon = 0.1000000000000000000001").privacy.epsilon > Fraction(1, 10)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6, max_denominator=10**6))
def test_any_decimal_is_read_exactly(tmp_path_factory, value):
    text = f"{value.numerator * 10**6 // value.denominator}e-6"
    problem = load(tmp_path_factory.mktemp("p"), f"[privacy]\nepsilon = {text}")
    assert problem.privacy.epsilon == Fraction(value.numerator * 10**6 // value.denominator, 10**6)


def test_ignores_tables_of_other_mechanisms(tmp_path):
    text = "[privacy]\nepsilon = 1\n[acme-mech]\nanything = 1"
    assert load(tmp_path, text, ignore={"acme-mech"}).privacy.epsilon == 1
    with pytest.raises(InputError):
        load(tmp_path, text, ignore={"other"})


def test_names_invalid_bytes_and_missing_files(tmp_path):
    path = tmp_path / "p.toml"
    with pytest.raises(InputError, match=r"p\.toml: file not"):
        load_problem(Problem, path)
    path.write_bytes("[privacy]\nepsilon = 1 # é".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 2.*UTF-8"):
        load_problem(Problem, path)
    path.write_bytes(b"\xef\xbb\xbf[privacy]\r\nepsilon = 1\r\n")
    assert load_problem(Problem, path).privacy.epsilon == 1


def test_published_problem_may_lack_secret_files(tmp_path):
    text = "[privacy]\nepsilon = 1\nsecret = 'counts.csv'"
    assert any("counts.csv" in line for line in faults(tmp_path, text))
    problem = load(tmp_path, text, public=True)
    assert files_of(problem) == [File(name="counts.csv", path=None, secret=True)]
    with pytest.raises(InputError, match="secret"):
        _ = files_of(problem)[0].here


def test_checks_values_given_in_python():
    with pytest.raises(InputError, match=r"epsilon: expected .*, got -1"):
        Privacy(epsilon=Fraction(-1))


def test_describe_shows_every_key():
    rows = {row.key: row for row in describe_keys(Problem)}
    assert rows["privacy.epsilon"].unit == "1/km"
    assert rows["privacy.epsilon"].default == "required"
    assert rows["privacy.kind"].type == "weak | strong"
    assert rows["privacy.users"].type == "list of text | all | table"
    assert "(secret)" in rows["privacy.secret"].help
    assert rows["lr-geo.random"].type == "whole number"
    assert all(row.help for row in rows.values())


@frozen(kw_only=True)
class Tight:
    tail: float = key(0.0, help="part cut off")
    steps: tuple[int, ...] = key((), help="widths")


@frozen(kw_only=True)
class TightProblem:
    options: Tight = key(Tight(), help="options", name="tight")


def test_describe_shows_keys_of_a_default_table():
    rows = [(row.key, row.default) for row in describe_keys(TightProblem)]
    assert rows == [("tight", "left out"), ("tight.tail", "0.0"), ("tight.steps", "left out")]


def test_finds_folders_beside_the_problem_only(tmp_path):
    text = '[privacy]\nepsilon = 1\nalbum = "photos"\n'
    expected = "expected a folder, its path relative to the problem file, got 'photos', which is not a folder"
    assert faults(tmp_path, text) == [f"p.toml: privacy.album: {expected}"]
    assert load(tmp_path, text, public=True).privacy.album == Folder(name="photos", path=None)
    (tmp_path / "photos").mkdir()
    assert load(tmp_path, text).privacy.album == Folder(name="photos", path=tmp_path / "photos")
    assert load(tmp_path, text, public=True).privacy.album == Folder(name="photos", path=None)
    assert [row.type for row in describe_keys(Problem) if row.key == "privacy.album"] == ["folder"]


def test_says_why_a_file_has_no_path():
    for file, reason in (
        (File(name="m.onnx", path=None, kept=b"bytes"), "a file in memory"),
        (File(name="m.onnx", path=None, secret=True), "it is secret"),
    ):
        with pytest.raises(InputError) as caught:
            _ = file.here
        assert_mentions(str(caught.value), "m.onnx", reason)


@given(cell=st.sampled_from(["SECRET7", "-3.25", "inf", "1e400"]), is_secret=st.booleans())
def test_secret_lengths_of_streets_are_not_quoted(cell, is_secret):
    contents = f"u,v,length\na,b,12.5\nb,c,{cell}\n".encode()
    with pytest.raises(InputError) as refused:
        road_table(File(name="streets.csv", path=None, secret=is_secret, kept=contents))
    assert_mentions(str(refused.value), "streets.csv: row 3, column length")
    assert (cell in str(refused.value)) is not is_secret
