"""The checker that shares no code: the standard library alone, one file of it, the same answers as verify."""

import ast
import hashlib
import io
import json
import math
import shutil
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from attrs import frozen
from click.testing import CliRunner
from helpers.checker_parts import modules, one_file, run
from helpers.examples import EXAMPLES
from helpers.mended_sums import edit, is_refused
from helpers.random_problems import CHECKED, forms
from hypothesis import example, given
from hypothesis import strategies as st

from privopt import checker
from privopt.checker.exact import ONE, PI, RefusedError, arcsine_of_root, cosine, exp_down, exp_up, log_down
from privopt.checker.files import Problem, describe_sums
from privopt.checker.parts import choose_part, find_parts
from privopt.command.checker_file import checker_file
from privopt.command.cli import cli
from privopt.declare import File, key
from privopt.declare.tables import Column, read_table
from privopt.errors import InfeasibleError, InputError
from privopt.files.release_folder import sums_text
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt.testing import subject
from privopt_metric_dp.kit import metric_profile
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.problem.declared import MetricProblem

LONG = 14
"""A problem with people anywhere on the earth: half a minute."""

LOADS = {"privopt.checker.run": {"importlib"}, "privopt.checker.parts": {"importlib"}}
"""Modules that find and import the part for a kind of guarantee by its name."""


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_modules_are_short_and_use_the_standard_library(module):
    text = Path(module.__file__).read_text("utf-8")
    assert text.count("\n") <= 600
    assert "noqa" not in text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name
            assert ast.get_docstring(node) or node.name.startswith("_") or has_nested_function(tree, node), node.name
        assert not isinstance(node, ast.Lambda) or isinstance(node.body, ast.Call | ast.ListComp), ast.unparse(node)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own_packages = ("privopt.checker", module.__name__.rpartition(".")[0])
    other_packages = {name.partition(".")[0] for name in names if not name.startswith(own_packages)}
    assert other_packages <= sys.stdlib_module_names
    assert other_packages & {"importlib", "pickle", "ctypes", "subprocess", "runpy"} == LOADS.get(
        module.__name__, set()
    )
    assert "eval(" not in text.replace("literal_eval(", "")


def has_nested_function(tree, inner):
    """Whether a function stands in another."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node is not inner]
    return any(inner in ast.walk(node) for node in functions)


def test_one_file_runs_in_an_empty_folder(example, tmp_path):
    copied_file = shutil.copy(one_file(), tmp_path / "check.pyz")
    folder = shutil.copytree(example("words"), tmp_path / "dir")
    code, output = run(folder, copied_file)
    assert (code, [line.split(":")[0] for line in output.splitlines()]) == (0, ["holds"] * 5)
    (folder / "report.html").unlink(missing_ok=True)
    (folder / "problem" / "words.txt").write_text("x\n")
    assert run(folder, copied_file)[0] == 1
    assert run(tmp_path / "none", copied_file) == (2, f"cannot be checked: files: {tmp_path / 'none'}: not a folder\n")
    completed = subprocess.run([sys.executable, "-I", copied_file], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout, completed.stderr[:6]) == (2, "", "usage:")


def test_command_writes_the_same_bytes_with_force(tmp_path):
    output_folder = tmp_path / "check.pyz"
    for options, code in (((), 0), ((), 2), (("--force",), 0)):
        completed = CliRunner().invoke(cli, ["checker", "--out", str(output_folder), *options])
        assert completed.exit_code == code, completed.output
        assert output_folder.read_bytes() == one_file().read_bytes()
    claims = find_parts()
    targets = checker_file("check.pyz")[1]
    assert targets == {kind: choose_part(claims, kind) for kind in claims}
    with zipfile.ZipFile(output_folder) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {
            "__main__.py",
            "privopt",
            *(target.partition(".")[0] for target in targets.values()),
        }


@pytest.mark.parametrize("name", ["optimal-lp", "bd-mdp", "words", "photo-censor"])
def test_examples_hold(example, name):
    lines: list[str] = []
    assert checker.check(example(name), lines.append) == 0, lines


@pytest.mark.parametrize("name", ["fl-linear", "lr-geo"])
def test_names_what_it_does_not_know(example, name):
    lines: list[str] = []
    assert checker.check(example(name), lines.append) == 2
    assert "cannot be checked" in lines[-1]


def test_seeded_release_claims_no_privacy(example, tmp_path):
    def mark_seeded(result):
        result["seed"] = 3
        result["guarantee"] |= {"seeded": True, "warning": "seeded, not private"}

    folder = edit(shutil.copytree(example("words"), tmp_path / "dir"), mark_seeded)
    assert verify(folder).verdict == "none"
    assert checker.check(folder, list[str]().append) == 6


def add_private_files(folder):
    """Add private files and their sums, as solve writes them, and reports, which no sums cover."""
    (folder / "private").mkdir(exist_ok=True)
    (folder / "private" / "truth.json").write_text('{"secret": 1}\n')
    (folder / "private" / "inner").mkdir(exist_ok=True)
    (folder / "private" / "inner" / "photo.npy").write_bytes(bytes(16))
    (folder / "private" / "SHA256SUMS").write_text(sums_text(folder / "private", private=True))
    for place in (folder, folder / "private"):
        (place / "report.html").write_text("<p>")
    return folder


def test_reads_private_files_and_counts_what_it_compared(example, tmp_path):
    folder = add_private_files(shutil.copytree(example("words"), tmp_path / "dir"))
    listed = sums_text(folder).count("\n")
    lines: list[str] = []
    assert (verify(folder).complaints, checker.check(folder, lines.append)) == ((), 0), lines
    private_count = sums_text(folder / "private", private=True).count("\n")
    assert lines[0] == (
        f"holds: files: {listed} as SHA256SUMS lists them, {private_count} as private/SHA256SUMS lists them; not "
        "compared, because never listed: private/report.html, report.html"
    )
    shutil.rmtree(folder / "private")
    assert checker.check(folder, lines.append) == 0, lines  # a recipient does not have them


@pytest.mark.parametrize(
    ("change", "code", "keywords"),
    [
        (lambda private: (private / "inner" / "photo.npy").write_bytes(bytes(15) + b"\1"), 1, "inner/photo.npy"),
        (lambda private: (private / "truth.json").unlink(), 1, "private/truth.json"),
        (lambda private: (private / "more.json").write_text("{}"), 1, "private/more.json"),
        (lambda private: (private / "inner" / "report.html").write_text(""), 1, "private/inner/report.html"),
        (lambda private: (private / "SHA256SUMS").unlink(), 2, "no private/SHA256SUMS"),
    ],
    ids=["one bit", "missing", "added", "a page inside", "no sums"],
)
def test_refuses_changed_private_files_like_verify(example, tmp_path, change, code, keywords):
    folder = add_private_files(shutil.copytree(example("words"), tmp_path / "dir"))
    change(folder / "private")
    lines: list[str] = []
    assert checker.check(folder, lines.append) == code
    assert keywords in lines[-1]
    assert is_refused(folder)


def test_one_compared_file_is_named_in_the_singular():
    names = ["SHA256SUMS", "result.json", "private/SHA256SUMS", "private/truth.json"]
    assert describe_sums(names) == "1 as SHA256SUMS lists it, 1 as private/SHA256SUMS lists it"


@pytest.mark.parametrize("number", sorted({*range(0, CHECKED, 2)} - {LONG}))
def test_accepts_random_problems_like_verify(tmp_path, number):
    check_agreement(forms(number), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [LONG, *range(1, CHECKED, 2), *range(CHECKED, 500)])
def test_accepts_many_random_problems_like_verify(tmp_path, number):
    check_agreement(forms(number), tmp_path)


def check_agreement(form, tmp_path):
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
        value_found, tolerance = float(words[2]), 0.0 if "value_unit" in result["details"] else 1e-9
        assert math.isclose(value_found, value, rel_tol=tolerance)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_reads_numbers_of_every_type_like_numpy(kind, order):
    numbers = np.random.default_rng(7).integers(0, 100, (3, 4))
    for layout in "CF":
        stream = io.BytesIO()
        np.save(stream, np.asarray(numbers, order=layout).astype(order + kind, order="K"))
        array = checker.Array(stream.getvalue(), "x")
        assert list(array.flat) == numbers.ravel().tolist()
        assert array.kind == (kind if order == "<" or kind[1] == "1" else f">{kind}")


@pytest.mark.parametrize("kind", ["c16", "g", "S3", "V4", "M8[s]", "m8[s]", ">U3"])
def test_names_unknown_types(kind):
    stream = io.BytesIO()
    np.save(stream, np.zeros((2, 2), kind))
    with pytest.raises(RefusedError, match="values of type") as excinfo:
        checker.Array(stream.getvalue(), "x")
    assert excinfo.value.code == 2


@pytest.mark.parametrize("kind", ["f2", "f4", ">f4", ">f8", "i1", "i4", ">i8", "u1", ">u2"])
def test_numbers_of_any_type_hold(tmp_path, kind):
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
    "rows of separators alone below the table": ('points = "a.csv"', "id,x,y\na,0,0\nb,1,0\nc,0,1\n,,\n , ,\n"),
    "a column twice that nobody asks for": ('points = "a.csv"', "id,n,x,y,n\na,1,0,0,2\nb,1,1,0,2\nc,1,0,1,2\n"),
}


@pytest.mark.parametrize("form", LEGAL)
def test_every_form_of_a_problem_holds(tmp_path, form):
    places, table = LEGAL[form]
    (tmp_path / "a.csv").write_text(table)
    text = f'[records]\n{places}\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1_0.5e-1\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n[bd-mdp]\nsubsets = 2\n')
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").folder
    lines: list[str] = []
    assert (verify(folder).verdict, checker.check(folder, lines.append)) == ("proved", 0), lines


@frozen(kw_only=True)
class AcmeOptions:
    """The table [acme]: how a third party's mechanism finds its matrix."""

    sharpness: float = key(1.0, help="factor of epsilon")
    hints: File = key(help="CSV: id")


@frozen(kw_only=True)
class AcmeProblem(MetricProblem):
    options: AcmeOptions = key(help="options of acme", name="acme")


class Acme(MetricMechanism[AcmeProblem]):
    problem_class = AcmeProblem

    def matrix(self, problem, context):
        options = problem.declared.options
        assert len(read_table(options.hints, [Column(name="id", kind="id")])["id"]) == 4
        z = np.exp(-options.sharpness * float(problem.data.epsilon) * problem.data.to_outputs / 2)
        return Matrix(z=z / z.sum(axis=1, keepdims=True), solver={"name": "closed form"})


class TableAlone(Problem):
    """A problem whose only file has the given contents."""

    def __init__(self, contents):
        self.contents = contents

    def read(self, name):
        return self.contents


@given(width=st.integers(2, 3), end=st.text(", \t\n", max_size=12), rows=st.integers(0, 2))
def test_reads_the_end_of_a_table_like_privopt(width, end, rows):
    header, row = ",".join("abc"[:width]) + "\n", ",".join("xyz"[:width]) + "\n"
    contents = (header + row * rows + end).encode()
    try:
        by_privopt = read_table(
            File(name="t.csv", path=None, kept=contents), [Column(name=name, kind="id") for name in "abc"[:width]]
        )
    except InputError:
        by_privopt = {}
    try:
        by_checker = TableAlone(contents).columns("t.csv")
    except RefusedError:
        by_checker = {}
    # The checker refuses missing ids later, where it knows that a column has ids.
    if all(map(all, by_checker.values())):
        assert {name: cells.tolist() for name, cells in by_privopt.items()} == by_checker


def test_own_table_of_a_third_party_changes_no_claim(tmp_path):
    own_table = '[acme]\nsharpness = 0.5\nhints = "hints.csv"\n'
    text = "[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "problem.toml").write_text(f"{text}[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n{own_table}")
    (tmp_path / "hints.csv").write_text("id\na\nb\nc\nd\n")
    acme = subject(Acme, guarantee="metric-dp", profile=metric_profile())
    with acme.registered():
        folder = solve(acme.spec.name, tmp_path / "problem.toml", tmp_path / "out").folder
        assert verify(folder).verdict == "proved"
    acme.close()
    assert (folder / "problem" / "hints.csv").exists()
    lines: list[str] = []
    assert checker.check(folder, lines.append) == 0, lines
    # A file that nothing names could be taken for part of the claim.
    (folder / "problem" / "other.csv").write_text("id\n")
    edit(folder, lambda result: None)
    assert checker.check(folder, lines.append) != 0


def test_reads_every_table_on_which_a_claim_depends(tmp_path):
    """A problem cannot name such a table in another way, nor outputs in another unit than the records."""
    text = "[records]\ngrid = {{ rows = 1, cols = 2, cell_km = 1.0 }}\n{outputs}[distance]\nkind = 'euclidean'\n"
    text += "[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n"
    outputs = "[outputs]\ngrid = { rows = 1, cols = 2, cell_km = 1.0 }\n"
    (tmp_path / "problem.toml").write_text(text.format(outputs=outputs))
    folder = solve("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").folder
    assert checker.check(folder, list[str]().append) == 0
    for name, changed_outputs, expected in (
        ("unit", f"{outputs}unit = 'mile'\n", "[outputs]: ['unit']"),
        ("list", f"{outputs}[[predictive]]\nepsilon = 9\n", "predictive: expected a table"),
        ("key", f"neighbours_within = 1.0\n{outputs}", "[records]: ['neighbours_within']"),
    ):
        forged = shutil.copytree(folder, tmp_path / name)
        contents = text.format(outputs=changed_outputs).encode()
        (forged / "problem" / "problem.toml").write_bytes(contents)
        digest = hashlib.sha256(contents).hexdigest()
        edit(forged, lambda result, digest=digest: result["problem"].update(sha256=digest))
        lines: list[str] = []
        assert checker.check(forged, lines.append) == 2, lines
        assert expected in lines[-1]


def test_tiny_losses_cannot_be_checked(tmp_path):
    np.save(tmp_path / "d.npy", 1.0 - np.eye(3))
    np.save(tmp_path / "c.npy", (1.0 - np.eye(3)) * 1e-300)
    text = '[records]\ncount = 3\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\nepsilon = 1.0\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out").folder
    lines: list[str] = []
    assert (checker.check(folder, lines.append), lines[-1][:17]) == (2, "cannot be checked")


def test_encloses_exponentials():
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


@given(st.integers(1, 10**40), st.integers(1, 10**40), st.integers(-140, 20))
@example(6, 1, -120)  # the nearest decimal of 120 digits is 1 + 1e-119, whose logarithm is too large
@example(1, 2**64, 0)
def test_bounds_logarithms_from_below_even_near_1(numerator, denominator, exponent):
    excess = Fraction(numerator, denominator) * Fraction(10) ** exponent
    with mpmath.workdps(400):
        exact = mpmath.log1p(mpmath.mpf(excess.numerator) / excess.denominator)
        bound = log_down(1 + excess)
        error = exact - mpmath.mpf(bound.numerator) / bound.denominator
        assert 0 <= error <= exact * mpmath.mpf("2e-110") + mpmath.mpf("1e-119")


def test_sines_and_arcs_are_within_their_bounds():
    import flint

    flint.ctx.prec = 400
    unit = flint.fmpz(ONE)
    assert abs(flint.arb(PI) / unit - flint.arb.pi()) < flint.arb(2) ** -250
    rng = np.random.default_rng(6)
    for angle in [0.0, 1e-9, *rng.uniform(-9.9, 9.9, 100).tolist()]:
        x = int(Fraction(angle) * ONE)
        exact = (flint.arb(flint.fmpz(x)) / unit).cos()
        assert abs(flint.arb(flint.fmpz(cosine(x))) / unit - exact) < flint.arb(2) ** -230
    for h in [0.0, 1e-30, 1.0, 0.5, *rng.uniform(0, 1, 100).tolist(), *(10.0 ** -rng.uniform(0, 30, 50)).tolist()]:
        x = int(Fraction(h) * ONE)
        exact = (flint.arb(flint.fmpz(x)) / unit).sqrt().asin()
        assert abs(flint.arb(flint.fmpz(arcsine_of_root(x))) / unit - exact) < flint.arb(2) ** -110
    flint.ctx.prec = 53


def test_knows_the_examples_of_mechanisms():
    assert {"optimal-lp", "words", "photo-censor"} <= set(EXAMPLES)
