"""``privopt audit --leakage``: an attacker's figures that are computed on request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.declare.schema import File
from privopt.declare.tables import Column, check_ids, read_array, read_table
from privopt.errors import Fault, InputError, SolverError, UsageError
from privopt.estimate.capacities import (
    error_beyond,
    min_capacity_bits,
    min_entropy_leakage_bits,
    shannon_capacity_bits,
    vulnerability,
)
from privopt.estimate.posterior import channel_of, prior_of
from privopt.interfaces import Channel
from privopt.run.verify import open_verified

__all__ = ["leakage", "read_gains"]

RADII: Final = 8
"""Distances, next to 0, at which the error of the best guess is stated."""
LARGEST_GAIN: Final = 1e150
"""Largest gain that is read: squares of gains stay finite in doubles."""
LARGEST_CAPACITY: Final = 1_000_000
"""Entries of a channel up to which its Shannon capacity is computed."""


def leakage(folder: Path, gains: Path | None = None) -> dict[str, object]:
    """Return what a release leaks to anyone who knows the prior, by the figures of quantitative information flow.

    Args:
        folder: the release; it is checked before it is used.
        gains: a table of gains (:func:`read_gains`), or None.
    """
    opened = open_verified(folder)
    channel = channel_of(opened)
    if not isinstance(channel, Channel):
        raise UsageError(f"{folder}: publishes noisy counts, wanted a release that draws reports")
    z, prior = channel.probabilities, prior_of(opened, None)
    capacity, note = _capacity(z)
    found: dict[str, object] = {
        "min_entropy_bits": min_entropy_leakage_bits(z, prior),
        "min_capacity_bits": min_capacity_bits(z),
        "shannon_capacity_bits": capacity,
    }
    if note:
        found["note"] = note
    if gains is not None:
        worth = vulnerability(z, prior, read_gains(gains, channel.inputs))
        found["g_vulnerability"] = {
            "prior": worth.prior,
            "posterior": worth.posterior,
            "leakage_bits": worth.leakage_bits,
        }
    errors = _errors(channel, prior)
    if errors is not None:
        found["error_beyond"] = errors
    return found


def _capacity(z: Floats) -> tuple[float | None, str]:
    """Return the Shannon capacity in bits; where it is not computed, None and why."""
    if z.size > LARGEST_CAPACITY:
        return None, f"shannon_capacity_bits: not computed over {LARGEST_CAPACITY:,} entries ({z.size:,})"
    try:
        return shannon_capacity_bits(z), ""
    except SolverError as error:
        return None, f"shannon_capacity_bits: {error}"


def read_gains(path: Path, ids: Sequence[str]) -> Floats:
    """(W, N) gains, from a .npy of that shape or a table guess,id,gain, where what is omitted earns 0."""
    file = File(name=path.name, path=path)
    if path.suffix == ".npy":
        made = read_array(file, (None, len(ids)), what="gains", most=LARGEST_GAIN)
        if not made.size or made.min() < 0:
            raise InputError([Fault(path.name, "", "gains below 0, or none", "gains of at least 0")])
        return made
    columns = [Column(name="guess", kind="id"), Column(name="id", kind="id"), Column(name="gain", least=0.0)]
    table = read_table(file, columns)
    guesses, row = np.unique(table["guess"], return_inverse=True)
    place = check_ids(file, table["id"], np.asarray(ids, dtype=np.str_), "id", "the id of a record")
    made = np.zeros((len(guesses), len(ids)))
    if len(np.unique(row * len(ids) + place)) < len(row):
        raise InputError([Fault(path.name, "", "a guess and record twice", "one row for each")])
    made[row, place] = table["gain"]
    return made


def _errors(channel: Channel, prior: Floats) -> dict[str, object] | None:
    """How often the best guess is farther off than some distances; None where there are none."""
    z = channel.probabilities
    if channel.distances is None or len(z) < 2:
        return None
    distances = channel.distances(np.arange(len(z)))
    apart = distances[np.isfinite(distances) & (distances > 0)]
    if not apart.size:
        return None
    radii = [0.0, *np.geomspace(float(apart.min()), float(np.quantile(apart, 0.5)), RADII).tolist()]
    return {
        "unit": channel.unit,
        "distance": radii,
        "error": [error_beyond(z, prior, distances, radius) for radius in radii],
    }
