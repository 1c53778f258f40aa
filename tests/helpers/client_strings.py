"""Strings of entropy that every client is asked about, and what the reference client makes of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from privopt_clients.client import Client, open_artefact
from privopt_clients.client_region import Mixture

__all__ = ["CHUNK", "Secret", "entropy_of", "hash_in_python", "inputs_of", "opened", "write_inputs"]

CHUNK: Final = 50_000
"""Strings of entropy that are compared at once: half a minute where a draw takes longest."""

Secret = str | list[float]


@cache
def opened(folder: Path) -> Client:
    """Open the artefact of an export."""
    return open_artefact((folder / "mechanism.bin").read_bytes())


def inputs_of(client: Client) -> list[Secret]:
    """Return ids, and positions around them where there are any: within the region, at its rim and far from it."""
    source, near = random.Random(1), 0.004 if client.limits[:1] == ((-90.0, 90.0),) else 0.4
    found: list[Secret] = list(client.ids)
    for (a, b), (c, d) in zip(client.positions, client.positions[7:], strict=False):
        found.append([(a + c) / 2, (b + d) / 2])
    for number, (first, second) in enumerate(client.positions * 4):
        spread = near * (100 if number % 20 == 0 else number % 3)  # on the place itself too
        found.append([first + source.uniform(-spread, spread), second + source.uniform(-spread, spread)])
    return found


def write_inputs(path: Path, inputs: Sequence[Secret], more: Sequence[str] = ()) -> Path:
    """Write a line each: an id, or two numbers; with one more text each, if given."""
    lines = [[secret] if isinstance(secret, str) else [repr(at) for at in secret] for secret in inputs]
    path.write_text("".join("\t".join([*line, *more[n : n + 1]]) + "\n" for n, line in enumerate(lines)), "utf-8")
    return path


def entropy_of(client: Client, chunk: int, count: int) -> tuple[bytes, int]:
    """Return so many strings of entropy, and the bytes of each: of column weights two blocks; often none counts."""
    size = min(client.entropy, 2 * client._mechanism.block)
    return random.Random(chunk).randbytes(size * count), size


@cache
def hash_in_python(folder: Path, chunk: int, count: int) -> str:
    """Return the SHA-256 of the ids that strings of entropy lead to, over the inputs in turn.

    As ``report_from`` draws them, but what an input leads to is looked up once: entropy has no part in it.
    """
    client = opened(folder)
    rows, (entropy, size) = _rows_of(folder), entropy_of(client, chunk, count)
    ids = [*client._outputs.ids, "no block counts"]
    told = hashlib.sha256()
    for at in range(count):
        output = client._mechanism.draw(rows[at % len(rows)], entropy[at * size : (at + 1) * size])
        told.update(f"{ids[-1 if output is None else output]}\n".encode())
    return told.hexdigest()


@cache
def _rows_of(folder: Path) -> list[Mixture]:
    """Return the rows and shares that each input leads to."""
    return [opened(folder)._find_rows(secret) for secret in inputs_of(opened(folder))]
