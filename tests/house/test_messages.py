"""What is said where something is wrong or does not apply, and of plans, in words that help; errors travel whole."""

import pickle
from fractions import Fraction

import pytest
from helpers.mentions import assert_mentions

from privopt import errors
from privopt.errors import Fault, InputError, UnknownNameError, UsageError
from privopt.interfaces.plan import Plan
from privopt.run.audit import audit, table
from privopt.run.solve import solve

WORDS = """
[records]
vectors = "words.npy"
[distance]
kind = "euclidean"
[privacy]
epsilon = 1.0
[utility]
kind = "distance"
"""


def test_audit_names_what_does_not_apply_once():
    text = table({"epsilon": {"claimed": 1.0, "achieved": None}, "gv": None, "entropy_bits": None, "own_key": 2.5})
    lines = text.splitlines()
    assert lines[0].split() == ["epsilon", "claimed", "1,", "achieved", "unknown"]
    assert lines[1].split() == ["own", "key", "2.5"]
    assert_mentions(lines[2], "violated inequalities", "entropy of the output")
    assert len(lines) == 3


def test_audit_of_a_matrix_applies_completely(solved_toy):
    assert "not for this" not in table(audit(solved_toy))


def test_planar_noise_names_vectors(tmp_path):
    import numpy as np

    np.save(tmp_path / "words.npy", np.eye(3))
    (tmp_path / "p.toml").write_text(WORDS)
    with pytest.raises(InputError, match=r"euclidean or haversine.*over vectors"):
        solve("planar-laplace", tmp_path / "p.toml", tmp_path / "out")


def test_repeated_names_are_counted(tmp_path):
    rows = "".join(f"{n % 7},41.{n:05d},12\n" for n in range(1_266))
    (tmp_path / "points.csv").write_text("id,lat,lon\n" + rows)
    text = WORDS.replace('vectors = "words.npy"', 'points = "points.csv"').replace("euclidean", "haversine")
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError) as excinfo:
        solve("exponential", tmp_path / "p.toml", tmp_path / "out")
    lines = str(excinfo.value).splitlines()
    assert len(lines) == 21
    assert "1239 more faults" in lines[-1]


def test_alternative_columns_are_named_as_a_choice(tmp_path):
    (tmp_path / "points.csv").write_text("name,lat,lon\na,1,2\n")
    text = WORDS.replace('vectors = "words.npy"', 'points = "points.csv"').replace("euclidean", "haversine")
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError, match=r"id, lat,lon or.*'id'"):
        solve("exponential", tmp_path / "p.toml", tmp_path / "out")


def test_plan_claims_only_the_best_split_found():
    """A search finds no more than it finds: nothing is said of all splits."""
    half = Fraction(1, 2)
    plan = Plan(
        method="m",
        budget="epsilon",
        unit="u",
        basis="b",
        parts=("p",),
        errors={half: (1.0,)},
        best=((half,), (1.0,)),
        baselines={"leaves-only": {half: (2.0,)}},
        problem_budget=half,
    )
    head, row, _, shares_head, shares_row = plan.lines()[1:]
    assert head.split() == ["epsilon", "0.5", "leaves-only", "best", "split"]
    assert row.split() == ["p", "1", "2", "1"]
    assert shares_head.split() == ["best", "split"]
    assert shares_row.split() == ["p", "50"]
    assert plan.to_json()["baselines"][0]["by_part"] == [2.0]


@pytest.mark.parametrize(
    "error",
    [InputError([Fault("a", "b", "c", "d")]), UnknownNameError("method", "fulll", ["full", "auto"]), UsageError("no")],
)
def test_errors_survive_pickling(error):
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is type(error)
    assert str(unpickled) == str(error)
    assert unpickled.exit_code == error.exit_code


def test_fault_is_one_line():
    assert str(Fault("p.toml", "x.y", "two\nlines", "one")) == "p.toml: x.y: expected one, got two lines"
    assert str(Fault("p.toml", "", "nothing", "a table")) == "p.toml: expected a table, got nothing"


def test_tree_matches_the_docstring():
    for name in errors.__all__:
        member = getattr(errors, name)
        if isinstance(member, type) and issubclass(member, Exception):
            assert issubclass(member, errors.PrivoptError)
            assert f"{name}" in (errors.__doc__ or "")
            assert member.exit_code in (1, 2, 3, 5)


@pytest.mark.parametrize("is_secret", [False, True])
@pytest.mark.parametrize("known", [["n" * 10_000], [f"{number}" * 5_000 for number in range(30)], ["b", "n" * 9_999]])
def test_long_names_leave_a_message_short(known, is_secret):
    message = str(UnknownNameError("record", "n" * 10_000, known, is_secret=is_secret))
    assert len(message) <= 1000
    assert ("nnn" in message) == (not is_secret or "n" in known[-1])
