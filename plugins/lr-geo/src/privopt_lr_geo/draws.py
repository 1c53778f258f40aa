"""What users draw and keep to themselves: the order of their rows, and the centre of the circle that they ask for.

A run that goes on from a checkpoint needs the same draws again: without them its program is another one. They are
written beside the checkpoint, for the owner alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.files import open_private, private_folder
from privopt.files.archive import read_npz
from privopt_lr_geo.estimate import member_of

__all__ = ["Draw", "draw", "draw_or_resume"]

NAME: Final = "users.npz"


@frozen(kw_only=True, eq=False)
class Draw:
    """One user's.

    Attributes:
        order: (n,) in which its rows travel.
        centre: record, a member of its LR set, that its circle is around.
    """

    order: Ints
    centre: int


def draw(users: Sequence[int], sets: Sequence[Ints], seed: int | None) -> list[Draw]:
    """Draws of all users.

    Args:
        users: their records.
        sets: (n,) each user's LR set.
        seed: of orders and centres; None draws from the operating system.
    """
    chance = np.random.default_rng(seed)
    return [
        Draw(
            order=chance.permutation(len(records)),
            centre=member_of(records, None if seed is None else (seed, user)),
        )
        for user, records in zip(users, sets, strict=True)
    ]


def draw_or_resume(
    users: Sequence[int], sets: Sequence[Ints], seed: int | None, folder: Path, *, resume: bool
) -> list[Draw]:
    """The draws of the run that left ``folder``, where it is to be gone on with; else new ones, kept there.

    Raises:
        InputError: those in the folder are not of these users.
    """
    path = folder / NAME
    if resume and os.path.lexists(path):
        return _read(path, sets)
    made = draw(users, sets, seed)
    private_folder(folder)
    with open_private(path) as file:
        np.savez(
            file,
            orders=np.concatenate([one.order for one in made]),
            centres=np.array([one.centre for one in made], dtype=np.int64),
        )
    return made


def _read(path: Path, sets: Sequence[Ints]) -> list[Draw]:
    parts = read_npz(path, "the draws of a run")
    sizes = [len(records) for records in sets]
    wanted = {"orders": (sum(sizes),), "centres": (len(sets),)}
    for name, shape in wanted.items():
        found = parts.get(name)
        if found is None or found.shape != shape or found.dtype != np.int64:
            raise InputError([Fault(str(path), name, "another array", f"{shape[0]} whole numbers")])
    made = []
    orders = np.split(parts["orders"], np.cumsum(sizes)[:-1])
    for user, (order, centre, records) in enumerate(zip(orders, parts["centres"].tolist(), sets, strict=True)):
        if not np.array_equal(np.sort(order), np.arange(len(records))):
            raise InputError(
                [Fault(str(path), f"orders, user {user}", "no order", f"0 to {len(records) - 1}, each once")]
            )
        if centre not in records:
            raise InputError([Fault(str(path), f"centres, user {user}", str(centre), "a record of its LR set")])
        made.append(Draw(order=order, centre=centre))
    return made
