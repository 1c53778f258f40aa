"""Faults of secret files show no value of them, whatever mechanism reads them and whatever is wrong."""

from __future__ import annotations

import io
import traceback
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.api.draws import draw_of
from privopt.declare import load_problem
from privopt.errors import PrivoptError, UnknownNameError
from privopt.registry import registry
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.testing import GeneratedProblem, npy_bytes
from privopt.testing.profile import profile_of
from privopt.testing.variants import secret_files

SENTINEL = "73419"
CELLS = [
    f"-{SENTINEL}",
    f"z{SENTINEL}",
    f"{SENTINEL}.5",
    f'"{SENTINEL},5"',
    f"{SENTINEL}e300",
    SENTINEL * 9,
    f"é{SENTINEL}",
]
MECHANISMS = ["fl-linear", "hierarchical-dp", "hierarchical-tables"]


def plant_in_table(contents: bytes, draw) -> Iterator[bytes]:
    """Yield a secret table with the sentinel in a cell, as rows of a wrong length, and as a table without a header."""
    header, *rows = contents.decode().splitlines()
    if not rows:
        return
    names = header.split(",")
    row = draw(st.integers(0, len(rows) - 1))
    # Which regions there are is published, so that their names may be told.
    column = draw(st.sampled_from([number for number, name in enumerate(names) if not name.startswith("level_")]))
    cells = rows[row].split(",")
    cells[column] = draw(st.sampled_from(CELLS))
    faulty_row = ",".join(cells)
    yield "\n".join([header, *rows[:row], faulty_row, *rows[row + 1 :], ""]).encode()
    yield "\n".join([header, *rows, faulty_row, faulty_row, ""]).encode()
    yield "\n".join([header, *rows, f"{faulty_row},{SENTINEL}", ""]).encode()
    yield "\n".join([faulty_row, *rows, ""]).encode()
    yield "\n".join([header, *rows, faulty_row, ""]).encode("latin-1")


def plant_in_array(contents: bytes, draw) -> Iterator[bytes]:
    """Yield a secret matrix with the sentinel in one entry: negative, not symmetric, or as text."""
    array = np.load(io.BytesIO(contents))
    position = draw(st.integers(0, array.size - 1))
    for value in (-float(SENTINEL), float(SENTINEL)):
        faulty_array = array.copy()
        faulty_array.flat[position] = value
        yield npy_bytes(faulty_array)
        yield npy_bytes(faulty_array.astype(str))


def plant_in_problem(problem: GeneratedProblem, problem_declared, draw) -> Iterator[GeneratedProblem]:
    """Yield a problem with the sentinel in each of its secret files in turn."""
    for file in secret_files(problem_declared):
        plant = plant_in_array if file.endswith(".npy") else plant_in_table
        if file in problem.files:
            yield from (problem.with_file(file, contents) for contents in plant(problem.files[file], draw))


def check_messages(name: str, data, tmp_path_factory, capfd) -> None:
    mechanism = registry().get(name).load()
    example, folder = data.draw(profile_of(mechanism).problems), tmp_path_factory.mktemp("example")
    problem_declared = load_problem(mechanism.problem_class, example.write(folder), ignore=registry().mechanisms.keys())
    for problem in plant_in_problem(example, problem_declared, data.draw):
        folder = tmp_path_factory.mktemp("sentinel")
        path, message = problem.write(folder), ""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                solve(name, path, folder / "out", Options())
            except PrivoptError as error:
                message = str(error)
        streams = capfd.readouterr()
        all_output = "\n".join([message, streams.out, streams.err, *(str(entry.message) for entry in warned)])
        assert SENTINEL not in all_output, problem


QUICK = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", MECHANISMS)
@QUICK
@given(data=st.data())
def test_messages_never_show_secret_values(name, data, tmp_path_factory, capfd):
    check_messages(name, data, tmp_path_factory, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@LONG
@given(data=st.data())
def test_messages_of_many_problems_show_no_secrets(name, data, tmp_path_factory, capfd):
    check_messages(name, data, tmp_path_factory, capfd)


class Named:
    """A release of a mechanism that knows nothing of secrets in messages."""

    def sample(self, input_id: str, count: int) -> list[str]:
        raise UnknownNameError("record", input_id, ["a", "734190"])


def test_unknown_input_of_releases_is_not_repeated():
    with pytest.raises(UnknownNameError) as excinfo:
        draw_of("named", Named(), f"4{SENTINEL}")(1)
    assert f"4{SENTINEL}" not in "".join(traceback.format_exception(excinfo.value))
