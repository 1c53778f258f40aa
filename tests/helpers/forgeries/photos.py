"""Forged deletions of photos: toggled ones, lists that are none, trees of cases with a hole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from helpers.forgeries.changes import Change, Forgery, beside_it, no_bound, npz, problem_change, several
from helpers.forgeries.problems import FORMS, npy_as


def _cells(change: Callable[[list[str]], list[str] | None]) -> Change:
    def apply_change(folder: Path) -> None:
        path = folder / "deletions.csv"
        lines = path.read_text().splitlines()
        new_lines = change(lines)
        path.write_text("\n".join(lines if new_lines is None else new_lines) + "\n")

    return apply_change


def _hide_by_sign(folder: Path) -> None:
    """Scores that shall hide the place if 255 is read where -1 is written."""
    table = np.full((16, 40), -1, dtype=np.int8)
    table[:, 17] = 1
    np.save(folder / "problem" / "scores.npy", table)
    result = json.loads((folder / "result.json").read_text())
    lines = (folder / "deletions.csv").read_text().splitlines()
    if result["objective"]["unit"] == "photos":
        kept_lines = [f"{line.rpartition(',')[0]},0" for line in lines[1:]]
        (folder / "deletions.csv").write_text("\n".join([lines[0], *kept_lines]) + "\n")
        result["objective"]["value"] = 0.0
        result["certificate"].update(protected_k=39, rank_after=40, worst=0.0)
    result["objective"].update(lower_bound=None, gap=None)
    result["status"] = "feasible"
    (folder / "proof.npz").unlink()
    (folder / "result.json").write_text(json.dumps(result))


def _as_csv(change: Callable[[str], str]) -> Change:
    """Return the same scores as CSV, then changed."""

    def write_as_csv(folder: Path) -> None:
        table = np.load(folder / "problem" / "scores.npy").astype(str).tolist()
        rows = [",".join(row) for row in [[f"c{j}" for j in range(len(table[0]))], *table]]
        (folder / "problem" / "scores.csv").write_text(change("\n".join(rows) + "\n"), newline="")
        (folder / "problem" / "scores.npy").unlink()

    return several(write_as_csv, problem_change('"scores.npy"', '"scores.csv"'))


SCORES = {
    "a score without end": lambda text: _first(text, "inf"),
    "a score with an underscore": lambda text: _first(text, "-1_0"),
    "a score in digits of another script": lambda text: _first(text, "-\u0661"),
    "a score that is none": lambda text: _first(text, "nan"),
    "a score in quotes with more behind": lambda text: _first(text, '"-1"0'),
    "scores with a blank line": lambda text: text.replace("\n", "\n\n", 1),
    "scores with a return in a cell": lambda text: text.replace("c1,", "c\r1,", 1),
}
"""Scores in CSV that no model writes."""


def _first(text: str, cell: str) -> str:
    head, _, remaining_text = text.partition("\n")
    return f"{head}\n{cell},{remaining_text.partition(',')[2]}"


def _trivial(change: Callable[[Path], object]) -> Change:
    """Return the bound that needs no proof, beside a proof that is changed."""

    def apply_change(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        value, fewest = result["objective"]["value"], result["objective"]["unit"] == "photos"
        bound = 0.0 if fewest else 39.0
        result["objective"].update(lower_bound=bound, gap=1.0 if fewest else bound - value)
        result["status"] = "feasible" if bound != value else "optimal"
        (folder / "result.json").write_text(json.dumps(result))
        change(folder / "proof.npz")

    return apply_change


def photos_of(folder: Path) -> Iterator[Forgery]:
    """Photos toggled, lists that are none, and trees with a hole."""
    lines = (folder / "deletions.csv").read_text().splitlines()
    for row in range(1, len(lines)):

        def toggle(lines: list[str], row: int = row) -> None:
            name, _, deleted = lines[row].rpartition(",")
            lines[row] = f"{name},{1 - int(deleted)}"

        yield Forgery(name=f"photo {row - 1} toggled", change=_cells(toggle))
    yield Forgery(name="scores of bytes with a sign", change=_hide_by_sign)
    for description, score in SCORES.items():
        yield Forgery(name=description, change=_as_csv(score))
    for description, form in FORMS.items():
        if description in ("version 2", "no order of bytes"):
            yield Forgery(name=f"scores, {description}", change=npy_as("scores.npy", form))
    yield Forgery(name="a third field", change=_cells(lambda found: found.__setitem__(1, f"{found[1]},secret")))
    yield Forgery(name="a table that nobody knows", change=problem_change("[privacy]", "[zones]\nwide = 2\n[privacy]"))
    yield Forgery(name="keep_at_least below 0", change=problem_change("[privacy]", "keep_at_least = -5\n[privacy]"))
    yield Forgery(name="true_location below 0", change=problem_change("location = 17", "location = -23"))
    for keep_text in ("[99]", "[-1]", "[true]", '["no such photo"]', "[0.5]"):
        yield Forgery(name=f"keep = {keep_text}", change=problem_change("keep = [3]", f"keep = {keep_text}"))
    yield Forgery(
        name="more to keep than there are", change=problem_change("[privacy]", "keep_at_least = 99\n[privacy]")
    )
    for score in ('"0.0"', "false", "nan", "-0.1", "0.1"):
        yield Forgery(name=f"margin = {score}", change=problem_change("[privacy]\n", f"[privacy]\nmargin = {score}\n"))
    yield Forgery(name="keep_at_least no number", change=problem_change("[privacy]", "keep_at_least = true\n[privacy]"))
    yield Forgery(name="a folder beside scores", change=problem_change("[privacy]", 'folder = "x"\n[privacy]'))
    for task in ("top_k = 5", "deletion_budget = 4"):
        if task not in (folder / "problem" / "problem.toml").read_text():
            if task.startswith("top"):  # nobody need stay: a choice of none protects all
                change = several(
                    problem_change("deletion_budget = 4", "deletion_budget = 99"),
                    problem_change("keep = [3]", "keep_at_least = 0"),
                )
                yield Forgery(name="a budget for all", change=change)
            yield Forgery(name="two tasks", change=problem_change("[privacy]\n", f"[privacy]\n{task}\n"))
    yield Forgery(name="proof.npz: beside no bound", change=no_bound)
    yield Forgery(name="proof.npz: none beside a trivial bound", change=_trivial(lambda proof: proof.unlink()))
    yield Forgery(name="proof.npz: no archive", change=_trivial(lambda proof: proof.write_bytes(b"x")))
    yield Forgery(name="a file that nothing reads", change=beside_it("photo"))
    yield Forgery(name="a photo less", change=_cells(lambda found: found[:-1]))
    yield Forgery(name="photos in another order", change=_cells(lambda found: [found[0], *found[:0:-1]]))
    yield Forgery(name="a photo renamed", change=_cells(lambda found: found.__setitem__(1, "x,0")))
    yield Forgery(name="another header", change=_cells(lambda found: found.__setitem__(0, "photo,kept")))
    yield Forgery(name="neither 0 nor 1", change=_cells(lambda found: found.__setitem__(1, found[1][:-1] + "2")))
    with np.load(folder / "proof.npz") as archive:
        arrays = {key: archive[key].copy() for key in archive.files}

    def at(description: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"proof.npz: {description}", change=npz("proof.npz", change))

    if len(arrays["kind"]) > 1:
        yield at("multipliers 0", lambda a: a.update(values=a["values"] * 0))
        yield at("multipliers below 0", lambda a: a.update(values=-1 - a["values"]))
        yield at(
            "the last case gone", lambda a: a.update(kind=a["kind"][:-1], item=a["item"][:-1], starts=a["starts"][:-1])
        )
        yield at(
            "one case alone",
            lambda a: a.update(
                kind=a["kind"][-1:],
                item=a["item"][-1:],
                starts=a["starts"][:1].repeat(2),
                places=a["places"][:0],
                values=a["values"][:0],
            ),
        )
        for name, last in (("places", arrays["item"].max()), ("values", 1.0), ("starts", arrays["starts"][-1])):
            yield at(
                f"{name} that no case owns",
                lambda a, n=name, x=last: a.update({n: np.append(a[n], a[n].dtype.type(x))}),
            )
        yield at("another location", lambda a: a["item"].__setitem__(0, 10_000))
        yield at("multipliers of others", lambda a: a.update(places=a["places"][::-1].copy()))
    for name in arrays:
        yield at(f"without {name}", lambda a, n=name: a.pop(n))
    yield at("another version", lambda a: a["version"].__setitem__(0, 7))
    yield at("an array that nothing reads", lambda a: a.update(more=np.arange(2)))
    yield Forgery(name="proof.npz: none at all", change=lambda f: (f / "proof.npz").unlink())
