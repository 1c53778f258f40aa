"""Errors cross processes whole, and each has its exit code."""

import pickle

import pytest

from privopt import errors
from privopt.errors import Fault, InputError, UnknownNameError, UsageError


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
    assert str(Fault("p.toml", "x.y", "two\nlines", "one")) == "p.toml: x.y: found two lines, wanted one"
    assert str(Fault("p.toml", "", "nothing", "a table")) == "p.toml: found nothing, wanted a table"


def test_the_tree_is_what_the_module_says():
    for name in errors.__all__:
        thing = getattr(errors, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, errors.PrivoptError)
            assert f"{name}" in (errors.__doc__ or "")
            assert thing.exit_code in (1, 2, 3, 5)
