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

__all__ = ["CHUNK", "Secret", "entropy_of", "hash_in_python", "inputs_of", "open_export", "write_inputs"]

CHUNK: Final = 50_000
"""Strings of entropy that are compared at once: half a minute where a draw takes longest."""

Secret = str | list[float]


@cache
def open_export(folder: Path) -> Client:
    """Open the artefact of an export."""
    return open_artefact((folder / "mechanism.bin").read_bytes())


def inputs_of(client: Client) -> list[Secret]:
    """Return ids, and positions around them where there are any: within the region, at its rim and far from it."""
    source, degrees_near = random.Random(1), 0.004 if client.limits[:1] == ((-90.0, 90.0),) else 0.4
    inputs: list[Secret] = list(client.ids)
    for (a, b), (c, d) in zip(client.positions, client.positions[7:], strict=False):
        inputs.append([(a + c) / 2, (b + d) / 2])
    for number, (first, second) in enumerate(client.positions * 4):
        spread = degrees_near * (100 if number % 20 == 0 else number % 3)  # on the place itself too
        inputs.append([first + source.uniform(-spread, spread), second + source.uniform(-spread, spread)])
    return inputs


def write_inputs(path: Path, inputs: Sequence[Secret], extra_texts: Sequence[str] = ()) -> Path:
    """Write a line each: an id, or two numbers; with one more text each, if given."""
    lines = [[secret] if isinstance(secret, str) else [repr(number) for number in secret] for secret in inputs]
    path.write_text(
        "".join("\t".join([*line, *extra_texts[n : n + 1]]) + "\n" for n, line in enumerate(lines)), "utf-8"
    )
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
    client = open_export(folder)
    rows, (entropy, size) = _rows_of(folder), entropy_of(client, chunk, count)
    ids = [*client._outputs.ids, "no block counts"]
    digest = hashlib.sha256()
    for turn in range(count):
        row = rows[turn % len(rows)]
        output = None if row is None else client._mechanism.draw(row, entropy[turn * size : (turn + 1) * size])
        digest.update(f"{ids[-1 if output is None else output]}\n".encode())
    return digest.hexdigest()


@cache
def _rows_of(folder: Path) -> list[Mixture | None]:
    """Return the rows and shares that each input leads to; None for a position outside the region."""
    client = open_export(folder)
    inputs = inputs_of(client)
    return [client._find_rows(secret) if client.covers(secret) else None for secret in inputs]
