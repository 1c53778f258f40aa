"""What ``help`` and ``repr`` say of everything that ``import privopt as po`` offers."""

import inspect
import re

import pytest
from helpers.toys import write_toy

import privopt as po
from privopt.api.released import OpenRelease
from privopt.estimate.shares import Estimate
from privopt.run.verify import Verdict
from privopt_tables.released_matrix import ReleasedMatrix

MAX_LINES = 10
MAX_CHARACTERS = 800
UNITS = {
    "ReleasedMatrix.apply": ("max_snap", "km"),
    "ReleasedMatrix.estimate": ("resolution", "unit as distances"),
    "solve": ("time_limit", "seconds"),
    "grid": ("cell_km", "km"),
    "Ledger.set_limit": ("hours", "hours"),
}
"""Options that have a unit, and how the help must say it, at the least."""


def public_callables():
    """Every function of ``po``, and every public method of its classes and of what its functions return."""
    classes = {name: getattr(po, name) for name in po.__all__ if inspect.isclass(getattr(po, name))}
    classes |= {cls.__name__: cls for cls in (OpenRelease, ReleasedMatrix, Estimate, Verdict)}
    yield from ((name, getattr(po, name)) for name in po.__all__ if inspect.isfunction(getattr(po, name)))
    for class_name, cls in classes.items():
        for name, member in inspect.getmembers(cls, inspect.isroutine):
            module = getattr(member, "__module__", None) or ""
            if not name.startswith("_") and module.startswith("privopt"):
                yield f"{class_name}.{name}", member


def parameter_names(function):
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls")]


@pytest.mark.parametrize(("name", "function"), list(public_callables()), ids=[name for name, _ in public_callables()])
def test_help_explains_every_parameter(name, function):
    text = inspect.getdoc(function) or ""
    missing = [word for word in parameter_names(function) if not re.search(rf"\b{re.escape(word)}\b", text)]
    assert not missing, f"help(po.{name}) says nothing of {missing}"
    assert ":meth:`OpenRelease" not in text.splitlines()[0]  # a reader of help() cannot follow it


@pytest.mark.parametrize("name", UNITS)
def test_help_gives_units(name):
    function = dict(public_callables())[name]
    option, unit = UNITS[name]
    text = inspect.getdoc(function)
    (start,) = [match.start() for match in re.finditer(rf"^ *([\w, ]+, )?{option}(, \w+)*: ", text, re.MULTILINE)]
    assert unit in " ".join(text[start : start + 400].split())


def test_repr_is_short_and_says_what_matters(tmp_path):
    path = write_toy(tmp_path / "toy")
    release = po.solve("optimal-lp", path, seed=1)
    ledger = po.Ledger(tmp_path / "book")
    ledger.set_limit(1)
    shown = {
        "release": (repr(release), [f"{release.loss:.6g}", "metric-dp", "epsilon"]),
        "verdict": (repr(release.verify()), ["proved", "metric-dp"]),
        "problem": (repr(po.read_problem(path)), ["epsilon"]),
        "ledger": (repr(ledger), ["book"]),
        "cost": (repr(release.result), ["epsilon"]),
    }
    for name, (text, words) in shown.items():
        assert len(text.splitlines()) <= MAX_LINES, name
        assert len(text) <= MAX_CHARACTERS, name
        assert all(word in text for word in words), (name, text)


def test_repr_of_a_refused_folder_names_the_first_fault(tmp_path):
    release = po.solve("optimal-lp", write_toy(tmp_path / "toy"))
    folder = release.save(tmp_path / "out")
    (folder / "result.json").write_text("{}")
    from privopt.run.verify import verify

    text = repr(verify(folder))
    assert text.startswith("<refused: does not hold; ")
    assert "result.json" in text
