"""The program extracted from docs/proof, where ``make formal`` has built it, against the checker."""

import io
import json
import os
import random
import re
import shutil
import tomllib
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers.command import run
from helpers.forgeries import forge, forgeries, make
from helpers.forgeries.changes import npz
from helpers.kernels import PROOF, ends, needs_kernel
from helpers.toys import write_toy

from privopt import checker
from privopt.errors import InputError
from privopt.run import kernel
from privopt.run.options import Options
from privopt.run.solve import solve

BASES = ("town", "twins", "roads", "table", "soft")
"""Problems with forged folders that are in the proof's scope; "grid" is on the earth."""

STEP = 7
"""Of a base's forgeries every seventh is tried in ``make test``, all in ``make slow``."""


def essence(folder: Path) -> dict:
    """All of a folder that the theorem speaks of, but the figures of its objective."""
    result = json.loads((folder / "result.json").read_text())
    with np.load(folder / "mechanism.npz") as arrays:
        parts = {name: arrays[name].tolist() for name in ("weights", "records", "outputs")}
    problem = tomllib.loads((folder / "problem" / "problem.toml").read_text())
    tables = {
        path.name: path.read_bytes()
        for path in sorted((folder / "problem").iterdir())
        if path.suffix in (".csv", ".npy") and f'"{path.name}"' in (folder / "problem" / "problem.toml").read_text()
    }
    words = [result["guarantee"].get(key) for key in ("kind", "epsilon", "epsilon_text", "scope", "neighbours_within")]
    return {**parts, "problem": problem, "tables": tables, "words": words}


def compare(base: str, tmp_path: Path, step: int) -> list:
    """Forgeries that the program takes, and that are none of what it does not look at."""
    folder = make(base, tmp_path)
    assert ends(folder)[0] == checker.check(folder, str) == 0
    honest, stated = essence(folder), json.loads((folder / "result.json").read_text())["objective"]
    wrong = []
    for forgery in list(forgeries(base, folder))[::step]:
        forged = forge(folder, forgery, tmp_path / "forged")
        if ends(forged)[0] == 0 and checker.check(forged, str) != 0:
            found = json.loads((forged / "result.json").read_text())["objective"]
            close = abs(found["value"] - stated["value"]) <= 1e-9 * stated["value"]
            weaker = found["lower_bound"] is None or found["lower_bound"] <= stated["lower_bound"] * (1 + 1e-9)
            if essence(forged) != honest or not close or not weaker:
                wrong.append(forgery.name)
        shutil.rmtree(forged)
    return wrong


@needs_kernel
@pytest.mark.parametrize("base", BASES)
def test_what_the_checker_refuses_it_refuses_or_does_not_look_at(tmp_path, base):
    assert compare(base, tmp_path, STEP) == []


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("base", BASES)
def test_so_it_does_of_the_whole_corpus(tmp_path, base):
    assert compare(base, tmp_path, 1) == []


def random_problem(folder: Path, rng: random.Random) -> Path:
    """Write a problem in the proof's scope: euclidean, graph or matrix, with a prior, neighbours, other outputs."""
    folder.mkdir(parents=True)
    n, kind = rng.randint(2, 7), rng.choice(["euclidean", "graph", "matrix"])
    ids = [f"r{i}" for i in range(n)]
    text = '[records]\npoints = "points.csv"\n[distance]\n' + f'kind = "{kind}"\n'
    if kind == "euclidean":
        rows = [f"{i},{rng.randint(0, 30) / 10},{rng.uniform(0, 3):.3f}" for i in ids]
        (folder / "points.csv").write_text("id,x,y\n" + "\n".join(rows) + "\n")
    else:
        (folder / "points.csv").write_text("id\n" + "\n".join(ids) + "\n")
    if kind == "graph":
        nodes = [*ids, "a", "b"]
        edges = [(nodes[rng.randrange(i)], nodes[i]) for i in range(1, len(nodes))]
        edges += [tuple(rng.sample(nodes, 2)) for _ in range(n)]
        lines = [f"{u},{v},{rng.randint(1, 30) / 10}" for u, v in edges]
        (folder / "roads.csv").write_text("from,to,km\n" + "\n".join(lines) + "\n")
        text += 'edges = "roads.csv"\n'
    if kind == "matrix":
        places = np.array([[rng.random(), rng.random()] for _ in ids])
        np.save(folder / "d.npy", np.abs(places[:, None] - places[None]).sum(axis=2))
        text += 'matrix = "d.npy"\n'
    text += f"[privacy]\nepsilon = {rng.choice(['0.5', '1.25', '2', '3e-1'])}\n"
    if rng.random() < 0.4:
        text += f"neighbours_within = {rng.choice(['2.5', '4', '9'])}\n"
    loss = rng.choice(["distance", "travel-cost", "matrix"])
    text += f'[utility]\nkind = "{loss}"\n'
    if loss == "matrix":
        np.save(folder / "c.npy", np.array([[rng.random() for _ in ids] for _ in ids]))
        text += 'cost = "c.npy"\n'
    if rng.random() < 0.5:
        shares = [rng.randint(1, 9) for _ in ids]
        lines = [f"{i},{share / sum(shares):.9f}" for i, share in zip(ids, shares, strict=True)]
        (folder / "prior.csv").write_text("id,p\n" + "\n".join(lines) + "\n")
        text += 'prior = "prior.csv"\n'
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def solved(seed: int, folder: Path) -> Path:
    rng = random.Random(seed)
    mechanism = rng.choice(["optimal-lp", "exponential"])
    options = Options(method="full", solver="highs") if mechanism == "optimal-lp" else Options()
    return solve(mechanism, random_problem(folder / "problem", rng), folder / "out", options).folder


def mutated(folder: Path, rng: random.Random) -> str:
    """Change a folder somewhere that the theorem speaks of; returns what was changed."""

    def moved(arrays: dict) -> None:
        weights = arrays["weights"]
        i, k, m = rng.randrange(len(weights)), rng.randrange(weights.shape[1]), rng.randrange(weights.shape[1])
        share = np.uint64(int(weights[i, k]) // rng.choice([1, 2, 1000, 10**9]))
        weights[i, k] -= share
        weights[i, m] += share

    what = rng.choice(["weights", "epsilon", "value", "lower_bound", "digit"])
    result = json.loads((folder / "result.json").read_text())
    if what == "weights":
        npz("mechanism.npz", moved)(folder)
    elif what == "epsilon":
        path = folder / "problem" / "problem.toml"
        path.write_text(re.sub(r"epsilon = \S+", f"epsilon = {rng.choice(['0.49', '1', '2.1'])}", path.read_text()))
    elif what == "digit":
        path = rng.choice([p for p in (folder / "problem").iterdir() if p.suffix == ".csv"])
        text = path.read_text()
        at = rng.choice([i for i, sign in enumerate(text) if sign.isdigit()])
        path.write_text(text[:at] + str(rng.randrange(10)) + text[at + 1 :])
    elif result["objective"][what] is not None:
        result["objective"][what] *= 1 + rng.choice([1e-6, -1e-6, 0.1])
        (folder / "result.json").write_text(json.dumps(result))
    return what


def check_seed(seed: int, tmp_path: Path, mutations: int) -> list:
    folder, rng, wrong = solved(seed, tmp_path), random.Random(-seed), []
    if ends(folder)[0] != 0:
        wrong.append((seed, "refused", ends(folder)[1]))
    forged = tmp_path / "forged"
    for _ in range(mutations):
        shutil.copytree(folder, forged)
        what = mutated(forged, rng)
        (forged / "SHA256SUMS").write_text(sums(forged))
        ours, theirs = ends(forged)[0], checker.check(forged, str)
        if ours == 0 and theirs != 0 and essence(forged) != essence(folder):
            lines: list[str] = []
            checker.check(forged, lines.append)
            if not any(part in lines[-1] for part in LOOKED_AT_BY_OTHERS):
                wrong.append((seed, what, lines[-1]))
        shutil.rmtree(forged)
    return wrong


LOOKED_AT_BY_OTHERS = ("stored", "certificate", "sha256", "gap", "status", "required, and no way", "value_unit")
"""What the checker says of claims that the theorem is silent about: distances as they are stored, words."""


def sums(folder: Path) -> str:
    from privopt.files.release_folder import sums_text

    return sums_text(folder)


@needs_kernel
@pytest.mark.parametrize("seed", range(6))
def test_random_problems_are_proved_and_their_mutations_judged_alike(tmp_path, seed):
    assert check_seed(seed, tmp_path, 5) == []


@pytest.mark.slow
@needs_kernel
def test_so_are_five_hundred_problems_and_ten_thousand_mutations(tmp_path):
    wrong = []
    for seed in range(100, 600):
        with suppress(InputError):  # a limit below the least distance of two records
            wrong += check_seed(seed, tmp_path / str(seed), 20)
        shutil.rmtree(tmp_path / str(seed))
    assert wrong == []


@needs_kernel
def test_verify_says_that_a_proved_checker_agrees(tmp_path):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder
    done = run("verify", "--kernel", str(folder))
    assert done.exit_code == 0
    assert "proved, by a proved checker" in done.stdout
    done = run("verify", "--kernel", "--json", str(folder))
    assert json.loads(done.stdout)["kernel"].endswith("no bound is claimed")


@needs_kernel
def test_a_form_that_the_proof_does_not_speak_of_ends_2(tmp_path):
    folder = make("grid", tmp_path)
    done = run("verify", "--kernel", str(folder))
    assert done.exit_code == 2
    assert "docs/proof/README.md says which" in done.stderr
    assert ends(tmp_path) == (2, "unknown: a folder that cannot be read\n")


@needs_kernel
@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("weights", lambda folder: add_member(folder, "weights")),
        ("weights.npy", lambda folder: add_member(folder, "weights.npy")),
        ("value twice", lambda folder: reword(folder, '"value"', r'"\u0076alue": 0, "value"')),
        ("two pairs of coordinates", lambda folder: recolumn(folder, "id,x,y", "id,x,y,lat,lon")),
        ("a large array in a small archive", lambda folder: swell(folder)),
        ("a pipe", lambda folder: os.mkfifo(folder / "problem" / "pipe")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_be_read_in_two_ways_is_not_read(tmp_path, name, forged):
    folder = make("town", tmp_path)
    assert ends(folder)[0] == 0
    forged(folder)
    assert ends(folder)[0] == 2, name


def add_member(folder: Path, name: str) -> None:
    """Put another array of that name into mechanism.npz: all draws would be the first output."""
    with np.load(folder / "mechanism.npz") as arrays:
        weights = np.zeros_like(arrays["weights"])
    weights[:, 0] = np.uint64(2**63)
    stream = io.BytesIO()
    np.save(stream, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that stands there
        with zipfile.ZipFile(folder / "mechanism.npz", "a") as archive:
            archive.writestr(name, stream.getvalue())


def swell(folder: Path) -> None:
    """Put 64 MB of zeros into proof.npz, which take 64 kB there."""
    with zipfile.ZipFile(folder / "proof.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.npy", bytes(1 << 26))


def reword(folder: Path, old: str, new: str) -> None:
    """Change words of result.json."""
    path = folder / "result.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def recolumn(folder: Path, old: str, new: str) -> None:
    """Give every place a latitude and longitude beside x and y."""
    path = folder / "problem" / "points.csv"
    path.write_text(
        "\n".join(line + ",1,2" for line in path.read_text().splitlines()).replace(f"{old},1,2", new) + "\n"
    )


def test_without_the_program_verify_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(kernel.shutil, "which", lambda name: None)
    done = run("verify", "--kernel", str(tmp_path))
    assert done.exit_code == 2
    assert "make formal" in done.stderr


def test_nothing_is_admitted_and_no_axiom_added():
    for path in PROOF.glob("*.v"):
        text = path.read_text()
        assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Conjecture)\b", text), path.name
        assert text.count("\n") <= 400, path.name
        assert (
            path.name in (PROOF.parents[1] / ".ci" / "formal.py").read_text()
            or f'"{path.stem}"' in (PROOF.parents[1] / ".ci" / "formal.py").read_text()
        )


@needs_kernel
@pytest.mark.parametrize(
    ("head", "code"),
    [
        ('title = "a"\npurpose = "b é"\n', 0),
        ('purpose = "b"  # c\n\ntitle = "a"\n', 0),
        ('title = "a"\ntitle = "b"\n', 2),
        ('title = """a"""\n', 2),
        ('title = """\n[privacy]\nepsilon = 9\n"""\n', 2),
        ("title = 3\n", 2),
        ('other = "a"\n', 2),
    ],
)
def test_the_proof_speaks_of_a_title_and_a_purpose_before_the_tables(head, code, tmp_path):
    folder = make("town", tmp_path)
    path = folder / "problem" / "problem.toml"
    path.write_text(head + path.read_text("utf-8"), "utf-8")
    assert ends(folder)[0] == code


@needs_kernel
def test_it_passes_over_what_a_kilometre_costs_a_reader(tmp_path):
    folder = make("town", tmp_path)
    path = folder / "problem" / "problem.toml"
    text = path.read_text("utf-8")
    path.write_text(text.replace("[utility]\n", '[utility]\nper_km = { cost = 0.8, unit = "minutes" }\n'), "utf-8")
    assert "per_km" in path.read_text("utf-8")
    assert ends(folder)[0] == 0
