"""``privopt init --vectors``: a problem file for words, epsilon proposed by how many others hide each of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, slices
from privopt.errors import Fault, InputError, UsageError
from privopt.files.new_folder import new_file
from privopt.files.targets import check_file
from privopt.registry import registry
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_grid import digits
from privopt_tables.studies.draft_problem import Draft, loaded, own_tables
from privopt_tables.studies.draft_text import problem_text, relative
from privopt_tables.studies.word_vectors import is_vector_text, read_word_vectors

__all__ = ["RANKS", "init_words", "neighbour_distances"]

RANKS: Final = (10, 20, 50)
"""How many others shall hide a word: the first is proposed, and the others are told."""

MOST_WORDS: Final = 0.95
"""Part of the words for which that holds: the rest are outliers, whose distances say nothing of the others."""

MAX_SEARCHED_WORDS: Final = 2_000
"""Words whose neighbours are looked for, evenly through the list."""


def neighbour_distances(data: MetricData) -> dict[int, Floats]:
    """Return distances to the nearest neighbour and to those of :data:`RANKS`, ascending, of at most 2,000 words."""
    count = len(data.records)
    ranks = [rank for rank in (1, *RANKS) if rank < count]
    chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_SEARCHED_WORDS)).astype(np.int64))
    parts = []
    for part in slices(len(chosen), count, 1 << 22):
        rows = data.metric.rows(chosen[part])
        parts.append(np.sort(np.partition(rows, ranks[-1], axis=1)[:, : ranks[-1] + 1], axis=1)[:, ranks])
    return dict(zip(ranks, np.sort(np.concatenate(parts).T, axis=1), strict=True))


def _reach(distances: Floats, share: float) -> float:
    """Return the distance within which this part of the words has its neighbour."""
    return float(np.quantile(distances, share, method="higher"))


def init_words(mechanism: str, vectors: Path, ids: Path | None, out: Path, *, force: bool = False) -> Draft:
    """Write a problem file for words and their vectors; of vectors in text, also NAME-vectors.npy and NAME-words.txt.

    Args:
        mechanism: that it is for.
        vectors: ``.npy`` of shape (N, dim), one row a word; or text of GloVe or word2vec.
        ids: text file with a word a line; None for numbers.
        out: the problem file.
        force: replace it.

    Raises:
        InputError: vectors or words that ``solve`` would refuse, or fewer than 12 words.
        UsageError: a mechanism that is not over places, or a file that is there.
    """
    check_file(out.absolute(), force=force)
    cls = registry().get(mechanism).load().problem_class
    if not issubclass(cls, MetricProblem):
        raise UsageError(
            f"{mechanism} must be over places or words to take --vectors; privopt list names those that are"
        )
    if is_vector_text(vectors):
        return _init_text(mechanism, vectors, ids, out, force=force)
    folder = out.absolute().parent
    records: dict[str, object] = {"vectors": relative(vectors, folder)}
    if ids is not None:
        records["ids"] = relative(ids, folder)
    tables: dict[str, dict[str, object]] = {"records": records, "distance": {"kind": "euclidean"}}
    tables |= {"privacy": {"epsilon": 1.0}, "utility": {"kind": "distance"}}
    data = loaded(MetricProblem, tables, folder, vectors.name)
    if len(data.records) <= RANKS[0] + 1:
        raise InputError([Fault(vectors.name, "", f"{len(data.records)} words", f"more than {RANKS[0] + 1}")])
    away = neighbour_distances(data)
    reach = _reach(away[RANKS[0]], MOST_WORDS)
    if not reach > 0:
        raise InputError(
            [Fault(vectors.name, "", f"{RANKS[0]} and more equal vectors", "words apart from one another")]
        )
    epsilon = digits(1.0 / reach, up=False)
    tables["privacy"] = {"epsilon": epsilon}
    tables |= own_tables(cls, reach)
    loaded(cls, tables, folder, vectors.name)
    notes = (f"each row of {vectors.name} is taken for a word, {len(data.records):,} of them",)
    meaning = _meaning(away, epsilon)
    made = Draft(text=problem_text(mechanism, vectors, tables, notes, meaning), notes=(*notes, *meaning))
    with new_file(out, force=force) as path:
        path.write_text(made.text, "utf-8")
    return made


def _init_text(mechanism: str, vectors: Path, ids: Path | None, out: Path, *, force: bool) -> Draft:
    """Write vectors in text as ``.npy`` and a list of words next to the problem file, and the problem file."""
    if ids is not None:
        raise UsageError("--ids must be omitted with vectors in text: each line begins with its word")
    table = read_word_vectors(vectors)
    array, words = (out.absolute().with_name(f"{out.stem}-{name}") for name in ("vectors.npy", "words.txt"))
    for target in (array, words):
        check_file(target, force=force)
    try:
        with new_file(array, force=force) as path, path.open("wb") as stream:
            np.save(stream, table.vectors)
        with new_file(words, force=force) as path:
            path.write_text("".join(f"{word}\n" for word in table.words), "utf-8")
        draft = init_words(mechanism, array, words, out, force=force)
    except BaseException:
        array.unlink(missing_ok=True)
        words.unlink(missing_ok=True)
        raise
    written = f"the words and vectors of {vectors.name} are in {words.name} and {array.name}"
    return evolve(draft, notes=(*table.notes, written, *draft.notes))


def _meaning(away: dict[int, Floats], epsilon: float) -> list[str]:
    """Say what epsilon hides a word among, and which epsilon would hide it among more."""
    share = f"{100 * MOST_WORDS:g} of 100 words"
    lines = [
        f"{epsilon:g}: of {share} at least {RANKS[0]} others are so near that one report changes the odds between the "
        f"word and each of them by a factor of at most e, {math.ceil(100 * math.e) / 100:g}"
    ]
    lines += [
        f"for at least {rank} others: epsilon {digits(1.0 / _reach(away[rank], MOST_WORDS), up=False):g}"
        for rank in away
        if rank in RANKS[1:]
    ]
    halves = [f"{_reach(distances, 0.5):.3g} to the neighbour of rank {rank}" for rank, distances in away.items()]
    return [*lines, f"distances, median over the words: {', '.join(halves)}"]
