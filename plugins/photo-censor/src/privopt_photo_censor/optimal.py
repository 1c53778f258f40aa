"""The optimal set of photos, proved: the searches of this package side by side, on one incumbent.

Three engines can prove an optimum: branch and bound over alternates (best for small k), branch and bound over photos
(best for small albums and small budgets) and the mixed-integer program of P4 (:mod:`privopt_photo_censor.milp`). None
is best everywhere, so they take turns in slices that double, sharing the best set found; the first to close ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools
from privopt.errors import InfeasibleError, SolverError, StoppedError
from privopt_photo_censor.engines import AlternateSearch, Enumeration, PhotoSearch
from privopt_photo_censor.incumbent import Engine, Shared
from privopt_photo_censor.milp import MilpSearch
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.scores import Album, Task
from privopt_photo_censor.single import best_for

__all__ = ["ENGINES", "Plan", "clash", "easy", "solve"]

ENGINES: Final = ("alternates", "photos", "milp")
FIRST_TURN: Final = 5_000
"""Bounds that an engine may solve in its first turn; turns double. Counted, not timed, so that runs repeat."""
MILP_AFTER: Final = 300_000
"""Length of a turn from which on the MILP takes turns too."""


@frozen(kw_only=True, eq=False)
class Plan:
    """Photos to keep, and what is known of how good that is.

    Attributes:
        kept: (N,) mask.
        protected: locations at or above the true one, exactly.
        bound: top-k: the most photos that any set could keep; budget: the most locations that any could protect.
        engine: what closed the proof; empty where nothing did.
        programs: bounds, nodes and programs evaluated.
        stopped: whether a limit or an interrupt ended it.
        solver: name and version of the backend, where only the MILP ran.
        trajectory: (seconds, value, bound) of the incumbents.
    """

    kept: Bools
    protected: int
    bound: int
    engine: str
    programs: int = 0
    stopped: bool = False
    solver: str = ""
    trajectory: tuple[tuple[float, int, int], ...] = ()

    @property
    def deleted(self) -> int:
        """Photos not posted."""
        return int((~self.kept).sum())


def solve(
    album: Album,
    task: Task,
    *,
    deadline: float | None = None,
    engines: Sequence[str] = ENGINES,
    solver: str = "cbc",
    report: Callable[[int, int], None] | None = None,
) -> Plan:
    """The best set of photos to keep, proved best unless a limit comes first.

    Args:
        album: scores and what must stay.
        task: top-k or deletion budget.
        deadline: :func:`time.monotonic` value to stop at.
        engines: which may be used (tests and ``--method milp`` pick one).
        solver: backend of the MILP.
        report: called with value and bound after each turn.

    Raises:
        InfeasibleError: no set of photos will do; says what clashes.
        StoppedError: the limit came before any set was found.
    """
    plan = easy(album, task)
    if plan is not None:
        return plan
    shared = Shared(album, task, deadline)
    if not album.least and not shared.budget:
        _delete_all(shared)
    engine, stopped = "", False
    try:
        engine, stopped = _race(shared, engines, solver, report)
    except KeyboardInterrupt:
        if shared.value < 0 and not shared.budget:
            raise
        stopped = True
    return _plan(shared, task, engine, stopped)


def easy(album: Album, task: Task) -> Plan | None:
    """All photos may stay where some give the true location probability 0, or the task is met already."""
    everything = np.ones(album.photos, dtype=np.bool_)
    above = protected_k(album)
    if task.top_k is not None and above >= task.top_k:
        return Plan(kept=everything, protected=above, bound=album.photos, engine="nothing to delete")
    if task.budget is not None and above == album.locations - 1:
        return Plan(kept=everything, protected=above, bound=above, engine="nothing to delete")
    empty = task.budget is not None and task.budget >= album.photos and not album.least
    if empty:
        nothing = np.zeros(album.photos, dtype=np.bool_)
        return Plan(kept=nothing, protected=album.locations - 1, bound=album.locations - 1, engine="nothing kept")
    return None


def _delete_all(shared: Shared) -> None:
    """The empty set protects by (2), where it is allowed."""
    shared.best[:] = False
    shared.state[1:4] = 1, 0, shared.album.locations - 1


def _race(
    shared: Shared, names: Sequence[str], solver: str, report: Callable[[int, int], None] | None
) -> tuple[str, bool]:
    """Let the engines take turns. Returns the one that closed the proof, and whether a limit came first."""
    if shared.budget:
        _offer_singles(shared)
    else:
        _offer_greedy(shared)
    if shared.closed:
        return "single alternates", False
    engines = _engines(shared, names, solver)
    effort = FIRST_TURN
    while engines:
        for engine in list(engines):
            if engine.name == "milp" and effort < MILP_AFTER and len(engines) > 1:
                continue
            if shared.late:
                return "", True
            before = shared.value
            done = engine.turn(effort)
            if shared.value != before:
                shared.note()
            shared.cap = min(shared.cap, max(engine.bound(), shared.value))
            if report is not None:
                report(shared.value, shared.cap)
            if done or shared.closed:
                return engine.name, False
            if engine.spent:
                engines.remove(engine)
        effort *= 2
    return "", True


def _offer_singles(shared: Shared) -> None:
    """Start a budget from the album as it is and from the best set for each alternate alone."""
    everything = np.ones(shared.album.photos, dtype=np.bool_)
    shared.best[:] = everything
    shared.state[2:4] = shared.album.photos, protected_k(shared.album)
    shared.state[0] = shared.state[3] + 1
    need = int(shared.state[1])
    for j in np.flatnonzero(shared.reach >= need).tolist():
        kept = best_for(shared.album, j, need)
        if (shared.data.sums(kept) >= -shared.data.slack).sum() >= shared.state[0]:
            shared.offer(kept)


def _offer_greedy(shared: Shared) -> None:
    """Start a top-k from greedy deletion, by the true score and by the mean advantage."""
    data, photos = shared.data, shared.album.photos
    free = np.flatnonzero(~data.keep)
    dead = data.kills.astype(np.float64)
    for key in (data.true, -data.diff.mean(axis=0) - 1e6 * dead.mean(axis=0)):
        order = free[np.argsort(-key[free], kind="stable")][: photos - int(shared.state[1])]
        left = data.diff.sum(axis=1)[:, None] - np.cumsum(data.diff[:, order], axis=1)
        ruled = dead.sum(axis=1)[:, None] - np.cumsum(dead[:, order], axis=1) > 0.5
        able = ((left >= -data.slack[:, None]) & ~ruled).sum(axis=0) >= shared.state[0]
        for count in np.flatnonzero(able)[:5].tolist():
            kept = np.ones(photos, dtype=np.bool_)
            kept[order[: count + 1]] = False
            if shared.offer(kept):
                break


def _engines(shared: Shared, names: Sequence[str], solver: str) -> list[Engine]:
    if "enumeration" in names or (tuple(names) == ENGINES and shared.album.photos <= Enumeration.MOST_PHOTOS):
        return [Enumeration(shared)]
    found: list[Engine] = []
    if "alternates" in names and AlternateSearch.fits(shared):
        found.append(AlternateSearch(shared))
    if "photos" in names and PhotoSearch.fits(shared):
        found.append(PhotoSearch(shared))
    if shared.album.photos <= 20 or shared.budget:
        found.reverse()
    if "milp" in names:
        found.append(MilpSearch(shared, solver, alone=not found))
    if not found:
        raise SolverError(f"none of the engines {', '.join(names)} takes an album of this size")
    return found


def _plan(shared: Shared, task: Task, engine: str, stopped: bool) -> Plan:
    if shared.value < 0:
        if stopped:
            raise StoppedError("stopped before any set of photos was found that meets the task; nothing written")
        raise InfeasibleError(clash(shared, task))
    cap = shared.value if engine else max(shared.cap, shared.value)
    if shared.budget:
        _restore(shared)
    return Plan(
        kept=shared.best.copy(),
        protected=protected_k(shared.album, shared.best),
        bound=cap,
        engine=engine,
        programs=int(shared.state[4]),
        stopped=stopped and not engine,
        solver=shared.solver if engine == "milp" else "",
        trajectory=tuple(shared.trajectory),
    )


def _restore(shared: Shared) -> None:
    """Post again, one by one, photos whose deletion the protected k does not need."""
    data, kept = shared.data, shared.best
    sums = data.diff[:, kept].sum(axis=1)
    for i in np.flatnonzero(~kept):
        kept[i] = True
        able = (sums + data.diff[:, i] >= -data.slack).sum() >= shared.value
        if able and protected_k(shared.album, kept) >= shared.value:
            sums += data.diff[:, i]
        else:
            kept[i] = False


def clash(shared: Shared, task: Task) -> str:
    """Which constraints an infeasible album breaks on."""
    album = shared.album
    kept = int(album.keep.sum())
    able = int((shared.reach >= shared.state[1]).sum())
    parts = [f"photos.keep ({kept} photo{'s' * (kept > 1)})"] if kept else []
    if album.keep_at_least > kept:
        parts.append(f"photos.keep_at_least = {album.keep_at_least}")
    parts.append(f"privacy.top_k = {task.top_k}")
    if album.margin:
        parts.append(f"privacy.margin = {album.margin:g}")
    if album.keep.all():
        reason = f"every photo is kept, and they leave {protected_k(album)} locations at or above the true one"
    else:
        reason = f"{able} locations can be brought level with the true one, each for itself"
    return f"infeasible: {' and '.join(parts)} cannot all hold ({reason})"
