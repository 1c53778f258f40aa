"""Each user's random row order and circle centre, derived from a seed kept next to the checkpoint.

Both follow from one seed of the run, drawn from the operating system. A run that goes on from a checkpoint needs the
same draws again, or its program is another one: the seed is kept next to the checkpoint, for the owner alone.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from secrets import randbits
from typing import Final

import numpy as np

from privopt.arrays import Ints
from privopt.files.archive import read_arrays
from privopt.files.regular import open_private, private_folder

__all__ = ["drawn", "new_seed", "stored_seed"]

NAME: Final = "users.npz"
WORD_BITS: Final = 64
"""Bits of half a seed."""


def drawn(seed: int, user: int, records: Ints) -> tuple[Ints, int]:
    """Return the order (n,) in which a user's rows travel, and the record of its LR set that its circle is around.

    It draws them once and keeps them: the mean of many centres is its own place. Draws of other users reveal nothing.

    Args:
        seed: of the run; secret but in trials.
        user: its record.
        records: (n,) its LR set.
    """
    key = sha256(f"{seed} {user}".encode()).digest()
    chance = np.random.default_rng(int.from_bytes(key, "big"))
    return chance.permutation(len(records)), int(chance.choice(records))


def new_seed() -> int:
    """Draw a seed from the operating system."""
    return randbits(2 * WORD_BITS)


def stored_seed(folder: Path, seed: int | None, *, resume: bool) -> int:
    """Return the seed of the run that left ``folder``, where it is to be gone on with; else a new one, kept there.

    Args:
        folder: of the checkpoint.
        seed: to keep; None draws one.
        resume: go on with what is in the folder.

    Raises:
        InputError: what is in the folder is not a seed.
    """
    path = folder / NAME
    if resume and os.path.lexists(path):
        high, low = read_arrays(path, {"seed": (np.uint64, (2,))})["seed"].tolist()
        return int(high << WORD_BITS | low)
    made = new_seed() if seed is None else seed % (1 << 2 * WORD_BITS)
    private_folder(folder)
    with open_private(path) as file:
        np.savez(file, seed=np.array(divmod(made, 1 << WORD_BITS), dtype=np.uint64))
    return made
