"""What is said where something is wrong or does not apply, and of plans, in words that help; errors travel whole."""

import pickle
from fractions import Fraction

import pytest

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


def test_an_audit_names_what_does_not_apply_once():
    said = table({"epsilon": {"claimed": 1.0, "achieved": None}, "gv": None, "entropy_bits": None, "own_key": 2.5})
    lines = said.splitlines()
    assert lines[0].split() == ["epsilon", "claimed", "1,", "achieved", "unknown"]
    assert lines[1].split() == ["own", "key", "2.5"]
    assert lines[2].split(maxsplit=4)[-1] == "violated inequalities, entropy of the output (bits)"
    assert len(lines) == 3


def test_an_audit_of_a_matrix_has_nothing_that_does_not_apply(solved_toy):
    assert "not for this mechanism" not in table(audit(solved_toy))


def test_planar_noise_over_vectors_is_refused_for_the_vectors(tmp_path):
    import numpy as np

    np.save(tmp_path / "words.npy", np.eye(3))
    (tmp_path / "p.toml").write_text(WORDS)
    with pytest.raises(InputError, match=r"expected euclidean or haversine over points.*, got euclidean over vectors"):
        solve("planar-laplace", tmp_path / "p.toml", tmp_path / "out")


def test_names_that_repeat_a_thousand_times_are_counted(tmp_path):
    rows = "".join(f"{n % 7},41.{n:05d},12\n" for n in range(1_266))
    (tmp_path / "points.csv").write_text("id,lat,lon\n" + rows)
    text = WORDS.replace('vectors = "words.npy"', 'points = "points.csv"').replace("euclidean", "haversine")
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        solve("exponential", tmp_path / "p.toml", tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert "1239 more faults" in lines[-1]


def test_columns_of_which_one_choice_is_wanted_are_told_as_a_choice(tmp_path):
    (tmp_path / "points.csv").write_text("name,lat,lon\na,1,2\n")
    text = WORDS.replace('vectors = "words.npy"', 'points = "points.csv"').replace("euclidean", "haversine")
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(InputError, match=r"expected columns id, lat,lon or x,y.*, got no column 'id'"):
        solve("exponential", tmp_path / "p.toml", tmp_path / "out")


def test_a_plan_claims_the_best_split_that_it_found_alone_and_shows_simpler_ways_beside_it():
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
        own=half,
    )
    head, row, best = plan.lines()[1:]
    assert head.split() == ["epsilon", "0.5", "leaves-only", "best", "split"]
    assert row.split() == ["p", "1", "2", "1"]
    assert best == "best split of the budget found, in the same order: 1/2"
    assert plan.to_json()["baselines"][0]["by_part"] == [2.0]


@pytest.mark.parametrize(
    "error",
    [InputError([Fault("a", "b", "c", "d")]), UnknownNameError("method", "fulll", ["full", "auto"]), UsageError("no")],
)
def test_an_error_survives_the_way_to_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.exit_code == error.exit_code


def test_a_fault_is_one_line():
    assert str(Fault("p.toml", "x.y", "two\nlines", "one")) == "p.toml: x.y: expected one, got two lines"
    assert str(Fault("p.toml", "", "nothing", "a table")) == "p.toml: expected a table, got nothing"


def test_the_tree_is_what_the_module_says():
    for name in errors.__all__:
        thing = getattr(errors, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, errors.PrivoptError)
            assert f"{name}" in (errors.__doc__ or "")
            assert thing.exit_code in (1, 2, 3, 5)
