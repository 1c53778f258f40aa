"""The checker that shares no code: the standard library alone, one file of it, the same answers as verify."""

import ast
import io
import json
import math
import shutil
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.checker_parts import PACKAGES, modules, one_file, run
from helpers.examples import EXAMPLES
from helpers.mended_sums import edit
from helpers.random_problems import CHECKED, forms

from privopt import checker
from privopt.checker.exact import ONE, PI, RefusedError, arcsine_of_root, cosine, exp_down, exp_up
from privopt.checker.parts import choose_part, find_parts
from privopt.command.checker_file import checker_file
from privopt.command.cli import cli
from privopt.errors import InfeasibleError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify

LONG = 14
"""A problem with people anywhere on the earth: half a minute."""

LOADS = {"privopt.checker.run": {"importlib"}, "privopt.checker.parts": {"importlib"}}
"""Modules that find and import the part for a kind of guarantee by its name."""


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_each_module_is_read_in_one_sitting_and_imports_the_standard_library_alone(module):
    text = Path(module.__file__).read_text("utf-8")
    assert text.count("\n") <= 600
    assert "noqa" not in text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name
            assert ast.get_docstring(node) or node.name.startswith("_") or nested(tree, node), node.name
        assert not isinstance(node, ast.Lambda) or isinstance(node.body, ast.Call | ast.ListComp), ast.unparse(node)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = ("privopt.checker", module.__name__.rpartition(".")[0])
    others = {name.partition(".")[0] for name in names if not name.startswith(own)}
    assert others <= sys.stdlib_module_names
    assert others & {"importlib", "pickle", "ctypes", "subprocess", "runpy"} == LOADS.get(module.__name__, set())
    assert "eval(" not in text.replace("literal_eval(", "")


def nested(tree, inner):
    """Whether a function stands in another."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node is not inner]
    return any(inner in ast.walk(node) for node in functions)


def test_the_one_file_runs_alone_in_an_empty_place(example, tmp_path):
    alone = shutil.copy(one_file(), tmp_path / "check.pyz")
    folder = shutil.copytree(example("words"), tmp_path / "dir")
    code, said = run(folder, alone)
    assert (code, [line.split(":")[0] for line in said.splitlines()]) == (0, ["holds"] * 5)
    (folder / "report.html").unlink(missing_ok=True)
    (folder / "problem" / "words.txt").write_text("x\n")
    assert run(folder, alone)[0] == 1
    assert run(tmp_path / "none", alone) == (2, f"cannot be checked: files: {tmp_path / 'none'}: no folder\n")
    done = subprocess.run([sys.executable, "-I", alone], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr[:6]) == (2, "", "usage:")


def test_the_command_writes_the_same_bytes_again_and_replaces_nothing_unasked(tmp_path):
    out = tmp_path / "check.pyz"
    for more, code in (((), 0), ((), 2), (("--force",), 0)):
        done = CliRunner().invoke(cli, ["checker", "--out", str(out), *more])
        assert done.exit_code == code, done.output
        assert out.read_bytes() == one_file().read_bytes()
    claims = find_parts()
    assert checker_file("check.pyz")[1] == {kind: choose_part(claims, kind) for kind in claims}
    with zipfile.ZipFile(out) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {
            "__main__.py",
            *(package.__name__.partition(".")[0] for package in PACKAGES),
        }


@pytest.mark.parametrize("name", ["optimal-lp", "bd-mdp", "words", "photo-censor"])
def test_examples_hold(example, name):
    lines: list[str] = []
    assert checker.check(example(name), lines.append) == 0, lines


@pytest.mark.parametrize("name", ["fl-linear", "hierarchical-dp", "lr-geo"])
def test_what_it_does_not_know_it_names(example, name):
    lines: list[str] = []
    assert checker.check(example(name), lines.append) == 2
    assert "cannot be checked" in lines[-1]


def test_a_seeded_release_claims_no_privacy(example, tmp_path):
    def seeded(result):
        result["seed"] = 3
        result["guarantee"] |= {"seeded": True, "warning": "seeded, not private"}

    folder = edit(shutil.copytree(example("words"), tmp_path / "dir"), seeded)
    assert verify(folder).verdict == "none"
    assert checker.check(folder, list[str]().append) == 6


@pytest.mark.parametrize("number", sorted({*range(0, CHECKED, 2)} - {LONG}))
def test_both_accept_random_problems_and_prove_what_is_stated(tmp_path, number):
    agree(forms(number), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [LONG, *range(1, CHECKED, 2), *range(CHECKED, 500)])
def test_both_accept_many_random_problems(tmp_path, number):
    agree(forms(number), tmp_path)


def agree(form, tmp_path):
    """Both accept, and bound and loss that the checker comes to are the stated ones, to the last bit."""
    problem = form.write(tmp_path / "problem")
    try:
        folder = solve(form.mechanism, problem, tmp_path / "out", Options(**form.options)).folder
    except InfeasibleError:
        pytest.skip("no choice of photos will do")
    assert verify(folder).complaints == ()
    lines: list[str] = []
    assert checker.check(folder, lines.append) == 0, lines
    result = json.loads((folder / "result.json").read_text())
    bound, value = result["objective"]["lower_bound"], result["objective"]["value"]
    if bound is not None and form.mechanism != "photo-censor":
        words = next(line for line in lines if "none is below" in line).split()
        assert bound == float(words[-1]) <= value
        found, room = float(words[2]), 0.0 if "value_unit" in result["details"] else 1e-9
        assert math.isclose(found, value, rel_tol=room)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_numbers_of_every_type_are_those_that_numpy_reads(kind, order):
    numbers = np.random.default_rng(7).integers(0, 100, (3, 4))
    for layout in "CF":
        stream = io.BytesIO()
        np.save(stream, np.asarray(numbers, order=layout).astype(order + kind, order="K"))
        made = checker.Array(stream.getvalue(), "x")
        assert list(made.flat) == numbers.ravel().tolist()
        assert made.kind == (kind if order == "<" or kind[1] == "1" else f">{kind}")


@pytest.mark.parametrize("kind", ["c16", "g", "S3", "V4", "M8[s]", "m8[s]", ">U3"])
def test_types_that_it_does_not_know_it_names(kind):
    stream = io.BytesIO()
    np.save(stream, np.zeros((2, 2), kind))
    with pytest.raises(RefusedError, match="values of type") as refused:
        checker.Array(stream.getvalue(), "x")
    assert refused.value.code == 2


@pytest.mark.parametrize("kind", ["f2", "f4", ">f4", ">f8", "i1", "i4", ">i8", "u1", ">u2"])
def test_a_problem_of_numbers_of_any_type_holds(tmp_path, kind):
    numbers = np.array([[0, 3, 5], [3, 0, 4], [5, 4, 0]])
    np.save(tmp_path / "d.npy", np.asfortranarray(numbers).astype(kind))
    np.save(tmp_path / "c.npy", (numbers[:, :2] + 1).astype(kind))
    text = '[records]\ncount = 3\n[outputs]\ncount = 2\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\n'
    text += 'epsilon = 1_0.2_5e-1\n[utility]\nkind = "matrix"\ncost = "c.npy"\n'
    (tmp_path / "problem.toml").write_text(text)
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").folder
    lines: list[str] = []
    assert (verify(folder).verdict, checker.check(folder, lines.append)) == ("proved", 0), lines


LEGAL = {
    "ids of two columns": ('points = "a.csv"\ncolumns = { id = ["u", "v"] }', "u,v,x,y\na,b,0,0\na,c,1,0\nd,b,0,1\n"),
    "an id of another name": ('points = "a.csv"\ncolumns = { id = "u" }', "u,x,y\na,0,0\nb,1,0\nc,0,1\n"),
    "a column twice that nobody asks for": ('points = "a.csv"', "id,n,x,y,n\na,1,0,0,2\nb,1,1,0,2\nc,1,0,1,2\n"),
}


@pytest.mark.parametrize("what", LEGAL)
def test_what_a_problem_may_say_holds(tmp_path, what):
    places, table = LEGAL[what]
    (tmp_path / "a.csv").write_text(table)
    text = f'[records]\n{places}\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1_0.5e-1\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n[bd-mdp]\nsubsets = 2\n')
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").folder
    lines: list[str] = []
    assert (verify(folder).verdict, checker.check(folder, lines.append)) == ("proved", 0), lines


def test_losses_below_its_numbers_it_cannot_check(tmp_path):
    np.save(tmp_path / "d.npy", 1.0 - np.eye(3))
    np.save(tmp_path / "c.npy", (1.0 - np.eye(3)) * 1e-300)
    text = '[records]\ncount = 3\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\nepsilon = 1.0\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out").folder
    lines: list[str] = []
    assert (checker.check(folder, lines.append), lines[-1][:17]) == (2, "cannot be checked")


def test_exponentials_are_enclosed():
    import flint

    rng = np.random.default_rng(5)
    for exponent in [0.0, 1e-60, 1e-12, *rng.uniform(0, 45, 200).tolist()]:
        x = int(Fraction(exponent) * ONE)
        low, high = exp_down(x), exp_up(x)
        flint.ctx.prec = 1200
        ball = (flint.arb(flint.fmpz(x)) / flint.arb(flint.fmpz(ONE))).exp() * flint.fmpz(ONE)
        assert flint.arb(flint.fmpz(low)) <= ball
        assert ball <= flint.arb(flint.fmpz(high))
        assert high - low <= max(4, low >> 230)
    flint.ctx.prec = 53


def test_sines_and_arcs_are_as_close_as_they_say():
    import flint

    flint.ctx.prec = 400
    one = flint.fmpz(ONE)
    assert abs(flint.arb(PI) / one - flint.arb.pi()) < flint.arb(2) ** -250
    rng = np.random.default_rng(6)
    for angle in [0.0, 1e-9, *rng.uniform(-9.9, 9.9, 100).tolist()]:
        x = int(Fraction(angle) * ONE)
        exact = (flint.arb(flint.fmpz(x)) / one).cos()
        assert abs(flint.arb(flint.fmpz(cosine(x))) / one - exact) < flint.arb(2) ** -230
    for h in [0.0, 1e-30, 1.0, 0.5, *rng.uniform(0, 1, 100).tolist(), *(10.0 ** -rng.uniform(0, 30, 50)).tolist()]:
        x = int(Fraction(h) * ONE)
        exact = (flint.arb(flint.fmpz(x)) / one).sqrt().asin()
        assert abs(flint.arb(flint.fmpz(arcsine_of_root(x))) / one - exact) < flint.arb(2) ** -110
    flint.ctx.prec = 53


def test_the_examples_of_the_mechanisms_are_known():
    assert {"optimal-lp", "words", "photo-censor"} <= set(EXAMPLES)
