"""Each user's random row order and circle centre, derived from a seed that is stored next to the checkpoint.

Both follow from a single seed for the run, which the operating system draws. A run that resumes from a checkpoint needs
the same draws, because its program depends on them. Therefore the seed is stored in a file that only its owner can
read.
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

__all__ = ["draw_order_and_centre", "new_seed", "stored_seed"]

NAME: Final = "users.npz"
WORD_BITS: Final = 64
"""The number of bits in each of a seed's two words."""


def draw_order_and_centre(seed: int, user: int, records: Ints) -> tuple[Ints, int]:
    """Draw the (n,) order in which a user's rows are sent, and the record at the centre of the circle that it requests.

    Equal arguments give equal draws, because the mean of many independent centres would reveal the user's place. One
    user's draws reveal nothing about another's.

    Args:
        seed: The seed for the run. It must be secret, except in experiments.
        user: The user's record.
        records: (n,) The records in the user's LR set.
    """
    # The key is hashed so that a user's draws reveal nothing about those of another user in the same run.
    key = sha256(f"{seed} {user}".encode()).digest()
    chance = np.random.default_rng(int.from_bytes(key, "big"))
    return chance.permutation(len(records)), int(chance.choice(records))


def new_seed() -> int:
    """Return a seed from the operating system's random source."""
    return randbits(2 * WORD_BITS)


def stored_seed(folder: Path, seed: int | None, *, resume: bool) -> int:
    """Return the seed of a run that is resumed from ``folder``, or store and return a new one.

    Args:
        folder: The folder for the checkpoint.
        seed: The seed to store if none is read. If None, one is drawn.
        resume: Whether to read the stored seed if there is one.

    Raises:
        InputError: The file in the folder does not contain a seed.
    """
    path = folder / NAME
    # lexists() is also true for a link that leads nowhere. Such a link is an error rather than a missing file.
    if resume and os.path.lexists(path):
        high, low = read_arrays(path, {"seed": (np.uint64, (2,))})["seed"].tolist()
        return int(high << WORD_BITS | low)
    new = new_seed() if seed is None else seed % (1 << 2 * WORD_BITS)
    private_folder(folder)
    with open_private(path) as file:
        np.savez(file, seed=np.array(divmod(new, 1 << WORD_BITS), dtype=np.uint64))
    return new
