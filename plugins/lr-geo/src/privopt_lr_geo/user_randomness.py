"""The users' random choices in a run: the order of uploaded rows, and the centre of the circle to request.

All choices are derived from one seed per run, which comes from the operating system's random source unless the caller
provides one. A run that resumes from a checkpoint must repeat the choices, because its program depends on them. The
seed is therefore stored with the checkpoint, in a file that only its owner can read.
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
"""The number of bits in each of the two words that store a seed."""


def draw_order_and_centre(seed: int, user: int, records: Ints) -> tuple[Ints, int]:
    """Draw a random order for a user's rows, and a random record for the centre of the circle that the user requests.

    The draws are determined by the arguments. If they differed between requests, the mean of many centres would reveal
    the user's position. One user's draws reveal nothing about another's.

    Args:
        seed: The seed of the run. It must be secret, except in experiments.
        user: The index of the user's record.
        records: (n,) The indices of the records in the user's LR set.

    Returns:
        A permutation of 0, ..., n - 1, and an element of ``records``.
    """
    # Hashing the key ensures that one user's draws reveal nothing about those of another user in the same run.
    key = sha256(f"{seed} {user}".encode()).digest()
    chance = np.random.default_rng(int.from_bytes(key, "big"))
    return chance.permutation(len(records)), int(chance.choice(records))


def new_seed() -> int:
    """Draw a new 128-bit seed from the operating system's random source."""
    return randbits(2 * WORD_BITS)


def stored_seed(folder: Path, seed: int | None, *, resume: bool) -> int:
    """Return the seed stored in a folder, or store a new one there and return it.

    Args:
        folder: The checkpoint folder.
        seed: The seed to store if none is read from the folder. If None, :func:`new_seed` draws one.
        resume: Whether to use the stored seed, if there is one. Otherwise, it is overwritten.

    Raises:
        InputError: The stored file does not contain a seed.
    """
    path = folder / NAME
    # lexists() is also true for a broken link, which is then an error rather than a missing file.
    if resume and os.path.lexists(path):
        high, low = read_arrays(path, {"seed": (np.uint64, (2,))})["seed"].tolist()
        return int(high << WORD_BITS | low)
    new = new_seed() if seed is None else seed % (1 << 2 * WORD_BITS)
    private_folder(folder)
    with open_private(path) as file:
        np.savez(file, seed=np.array(divmod(new, 1 << WORD_BITS), dtype=np.uint64))
    return new
