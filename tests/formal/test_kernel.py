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
from helpers.kernels import PROOF, needs_kernel, run_kernel
from helpers.toys import write_toy

from privopt import checker
from privopt.errors import InputError
from privopt.run import kernel
from privopt.run.solve import solve
from privopt.run.task import Options

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
    assert run_kernel(folder)[0] == checker.check(folder, str) == 0
    honest, original_result = essence(folder), json.loads((folder / "result.json").read_text())["objective"]
    accepted_names = []
    for forgery in list(forgeries(base, folder))[::step]:
        forged_folder = forge(folder, forgery, tmp_path / "forged")
        if run_kernel(forged_folder)[0] == 0 and checker.check(forged_folder, str) != 0:
            objective = json.loads((forged_folder / "result.json").read_text())["objective"]
            close = abs(objective["value"] - original_result["value"]) <= 1e-9 * original_result["value"]
            weaker = objective["lower_bound"] is None or objective["lower_bound"] <= original_result["lower_bound"] * (
                1 + 1e-9
            )
            if essence(forged_folder) != honest or not close or not weaker:
                accepted_names.append(forgery.name)
        shutil.rmtree(forged_folder)
    return accepted_names


@needs_kernel
@pytest.mark.parametrize("base", BASES)
def test_refuses_or_ignores_what_the_checker_refuses(tmp_path, base):
    assert compare(base, tmp_path, STEP) == []


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("base", BASES)
def test_refuses_or_ignores_the_full_corpus(tmp_path, base):
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
        lines = [f"{i},{weight / sum(shares):.9f}" for i, weight in zip(ids, shares, strict=True)]
        (folder / "prior.csv").write_text("id,p\n" + "\n".join(lines) + "\n")
        text += 'prior = "prior.csv"\n'
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def solve_random_problem(seed: int, folder: Path) -> Path:
    rng = random.Random(seed)
    mechanism = rng.choice(["optimal-lp", "exponential"])
    options = Options(method="full", solver="highs") if mechanism == "optimal-lp" else Options()
    return solve(mechanism, random_problem(folder / "problem", rng), folder / "out", options).folder


def mutate_folder(folder: Path, rng: random.Random) -> str:
    """Change a folder somewhere that the theorem speaks of; returns what was changed."""

    def move_weight(arrays: dict) -> None:
        weights = arrays["weights"]
        i, k, m = rng.randrange(len(weights)), rng.randrange(weights.shape[1]), rng.randrange(weights.shape[1])
        amount = np.uint64(int(weights[i, k]) // rng.choice([1, 2, 1000, 10**9]))
        weights[i, k] -= amount
        weights[i, m] += amount

    part = rng.choice(["weights", "epsilon", "value", "lower_bound", "digit"])
    result = json.loads((folder / "result.json").read_text())
    if part == "weights":
        npz("mechanism.npz", move_weight)(folder)
    elif part == "epsilon":
        path = folder / "problem" / "problem.toml"
        path.write_text(re.sub(r"epsilon = \S+", f"epsilon = {rng.choice(['0.49', '1', '2.1'])}", path.read_text()))
    elif part == "digit":
        path = rng.choice([p for p in (folder / "problem").iterdir() if p.suffix == ".csv"])
        text = path.read_text()
        position = rng.choice([i for i, sign in enumerate(text) if sign.isdigit()])
        path.write_text(text[:position] + str(rng.randrange(10)) + text[position + 1 :])
    elif result["objective"][part] is not None:
        result["objective"][part] *= 1 + rng.choice([1e-6, -1e-6, 0.1])
        (folder / "result.json").write_text(json.dumps(result))
    return part


def check_seed(seed: int, tmp_path: Path, mutations: int) -> list:
    folder, rng, disagreements = solve_random_problem(seed, tmp_path), random.Random(-seed), []
    if run_kernel(folder)[0] != 0:
        disagreements.append((seed, "refused", run_kernel(folder)[1]))
    forged_folder = tmp_path / "forged"
    for _ in range(mutations):
        shutil.copytree(folder, forged_folder)
        change = mutate_folder(forged_folder, rng)
        (forged_folder / "SHA256SUMS").write_text(sums(forged_folder))
        kernel_code, checker_code = run_kernel(forged_folder)[0], checker.check(forged_folder, str)
        if kernel_code == 0 and checker_code != 0 and essence(forged_folder) != essence(folder):
            lines: list[str] = []
            checker.check(forged_folder, lines.append)
            if not any(part in lines[-1] for part in LOOKED_AT_BY_OTHERS):
                disagreements.append((seed, change, lines[-1]))
        shutil.rmtree(forged_folder)
    return disagreements


LOOKED_AT_BY_OTHERS = (
    "stored",
    "certificate",
    "sha256",
    "gap",
    "status",
    "but no path over stored pairs",
    "value_unit",
)
"""What the checker says of claims that the theorem is silent about: distances as they are stored, words."""


def sums(folder: Path) -> str:
    from privopt.files.release_folder import sums_text

    return sums_text(folder)


@needs_kernel
@pytest.mark.parametrize("seed", range(6))
def test_kernel_agrees_on_random_mutations(tmp_path, seed):
    assert check_seed(seed, tmp_path, 5) == []


@pytest.mark.slow
@needs_kernel
def test_kernel_agrees_on_many_mutations(tmp_path):
    disagreements = []
    for seed in range(100, 600):
        with suppress(InputError):  # a limit below the least distance of two records
            disagreements += check_seed(seed, tmp_path / str(seed), 20)
        shutil.rmtree(tmp_path / str(seed))
    assert disagreements == []


@needs_kernel
def test_verify_mentions_the_proved_checker(tmp_path):
    folder = solve("exponential", write_toy(tmp_path / "toy"), tmp_path / "out").folder
    completed = run("verify", "--kernel", str(folder))
    assert completed.exit_code == 0
    assert "a proved checker" in completed.stdout
    completed = run("verify", "--kernel", "--json", str(folder))
    assert json.loads(completed.stdout)["kernel"].endswith("bound is claimed")


@needs_kernel
def test_form_outside_the_proof_exits_2(tmp_path):
    folder = make("grid", tmp_path)
    completed = run("verify", "--kernel", str(folder))
    assert completed.exit_code == 2
    assert "docs/proof/README.md says which" in completed.stderr
    assert run_kernel(tmp_path) == (2, "unknown: a folder that cannot be read\n")


@needs_kernel
@pytest.mark.parametrize(
    ("name", "forge"),
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
def test_refuses_ambiguous_files(tmp_path, name, forge):
    folder = make("town", tmp_path)
    assert run_kernel(folder)[0] == 0
    forge(folder)
    assert run_kernel(folder)[0] == 2, name


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


def test_verify_says_how_to_get_the_program(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(kernel.shutil, "which", lambda name: None)
    completed = run("verify", "--kernel", str(tmp_path))
    assert completed.exit_code == 2
    assert "make formal" in completed.stderr


def test_admits_nothing_and_adds_no_axiom():
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
def test_proof_covers_titles_before_tables(head, code, tmp_path):
    folder = make("town", tmp_path)
    path = folder / "problem" / "problem.toml"
    path.write_text(head + path.read_text("utf-8"), "utf-8")
    assert run_kernel(folder)[0] == code


@needs_kernel
def test_proof_ignores_reader_units(tmp_path):
    folder = make("town", tmp_path)
    path = folder / "problem" / "problem.toml"
    text = path.read_text("utf-8")
    path.write_text(text.replace("[utility]\n", '[utility]\nper_km = { cost = 0.8, unit = "minutes" }\n'), "utf-8")
    assert "per_km" in path.read_text("utf-8")
    assert run_kernel(folder)[0] == 0
