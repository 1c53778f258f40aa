"""Releases of best guesses that are none: private, of the loss that they state, and yet not what remapping makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from helpers.forgeries.changes import Change, Forgery, no_bound, npz, problem_change, several
from privopt.run.verify import load_release
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss

__all__ = ["guesses_of", "restate_weights"]


def restate_weights(change: Callable[[Any], object]) -> Change:
    """Other weights, all claims made true of them but for a bound, which nothing proves any more."""

    def apply_change(folder: Path) -> None:
        npz("mechanism.npz", lambda arrays: change(arrays["weights"]))(folder)
        no_bound(folder)
        (folder / "proof.npz").unlink()
        release = load_release(folder)
        data = release.problem.data
        value, unit = ExpectedLoss.of(data).state(release.release)
        result = json.loads((folder / "result.json").read_text())
        result["objective"]["value"], result["details"]["value_unit"] = value, unit
        certificate = release.mechanism.privacy(release.problem, release.result.method).measure(release.release)
        assert certificate.holds
        result["certificate"]["worst"] = certificate.worst
        (folder / "result.json").write_text(json.dumps(result))

    return apply_change


def _onto(k: int, to: int) -> Callable[[Any], object]:
    def change(weights: Any) -> None:
        weights[:, to] += weights[:, k]
        weights[:, k] = 0

    return change


def _turn_outputs(steps: int) -> Callable[[Any], object]:
    return lambda weights: weights.__setitem__(slice(None), np.roll(weights, steps, axis=1))


def _blur_rows(weights: Any) -> None:
    """Half of each row goes evenly to all outputs, which nobody would then guess."""
    weights[:] = weights // 2
    weights[:, :-1] += np.uint64(2**62 // weights.shape[1])
    weights[:, -1] = 2**63 - weights[:, :-1].sum(axis=1, dtype=np.uint64)


def guesses_of() -> Iterator[Forgery]:
    """Yield outputs that others stand for at less loss, and problems that do not say what they ask for."""
    yield Forgery(name="blurred, no longer guessed", change=restate_weights(_blur_rows))
    for steps in range(1, 6):
        yield Forgery(name=f"outputs turned by {steps}", change=restate_weights(_turn_outputs(steps)))
    for k, to in ((1, 3), (2, 3), (4, 0), (1, 0), (2, 5)):
        yield Forgery(name=f"output {k} released as {to}", change=restate_weights(_onto(k, to)))
    for remap_value in ("1", '"true"', "[true]", "0.0", "1970-01-01"):
        yield Forgery(name=f"remap = {remap_value}", change=problem_change("remap = true", f"remap = {remap_value}"))
    fewer = problem_change("p0,0.1\np1,0.2", "p0,0.2\np1,0.1", "prior.csv")
    yield Forgery(name="guesses under another prior", change=fewer)
    yield Forgery(name="the same, restated", change=several(fewer, restate_weights(_turn_outputs(3))))
