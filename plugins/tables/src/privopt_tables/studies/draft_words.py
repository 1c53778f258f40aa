"""Write a problem file for words (``privopt init --vectors``), with an epsilon that hides each word among others.

Distances between word vectors have no familiar unit, so epsilon is derived from the distances between words and their
k-th nearest neighbours for a few values of k.
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, slices
from privopt.errors import Fault, InputError, UsageError
from privopt.files.new_folder import check_files, make_parents
from privopt.registry import registry
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.draft_grid import round_to_digits
from privopt_tables.studies.draft_problem import Draft, load_drafted_problem, suggest_tables, write_together
from privopt_tables.studies.draft_text import format_problem, relative_path
from privopt_tables.studies.word_vectors import is_vector_text, read_word_vectors

__all__ = ["RANKS", "init_words", "neighbour_distances"]

RANKS: Final = (10, 20, 50)
"""The numbers of other words among which a word may be hidden. The proposed epsilon is for the first number, and notes
give the epsilons for the others."""

HIDDEN_SHARE: Final = 0.95
"""Fraction of the words that must be hidden. The rest are outliers, whose distances are not typical of words."""

MAX_SEARCHED_WORDS: Final = 2_000
"""Maximum number of words whose neighbours are searched for. If there are more, evenly spaced words are used."""


def neighbour_distances(data: MetricData) -> dict[int, Floats]:
    """Return the distances between words and their k-th nearest neighbours, for k = 1 and each k in :data:`RANKS`.

    Args:
        data: The problem's data, with the words and the metric between them.

    Returns:
        The distances, keyed by k. Each value is an array in ascending order with one entry per word, for at most 2,000
        words. A value of k is left out if there are k words or fewer.
    """
    count = len(data.records)
    ranks = [rank for rank in (1, *RANKS) if rank < count]
    word_numbers = np.unique(np.linspace(0, count - 1, min(count, MAX_SEARCHED_WORDS)).astype(np.int64))
    distances_by_part = []
    for part in slices(len(word_numbers), count, 1 << 22):
        rows = data.metric.rows(word_numbers[part])
        # Each row contains the word's distance to itself, so index k of a sorted row is the distance to the k-th
        # neighbour.
        distances_by_part.append(np.sort(np.partition(rows, ranks[-1], axis=1)[:, : ranks[-1] + 1], axis=1)[:, ranks])
    return dict(zip(ranks, np.sort(np.concatenate(distances_by_part).T, axis=1), strict=True))


def _distance_quantile(distances: Floats, probability: float) -> float:
    """Return the smallest distance within which at least a given fraction of words have their k-th nearest neighbour.

    Args:
        distances: The distances from words to their k-th nearest neighbours, in ascending order.
        probability: The fraction of words.
    """
    # If the quantile lies between two distances, the larger one is used, so that the result suffices for at least this
    # fraction of the words.
    return float(np.quantile(distances, probability, method="higher"))


def init_words(mechanism: str, vectors: Path, ids: Path | None, out: Path, *, force: bool = False) -> Draft:
    """Write a problem file for words and their vectors.

    Args:
        mechanism: The name of the mechanism to draft a problem for.
        vectors: A ``.npy`` file of shape (N, dim) with one row per word, or a text file in GloVe or word2vec format. A
            text file is converted to NAME-vectors.npy and NAME-words.txt.
        ids: A text file with one word per line. If None, the row indices of a ``.npy`` file are used as its words.
        out: The problem file to write.
        force: Whether to replace existing files.

    Raises:
        InputError: ``solve`` would reject the vectors or words, there are fewer than 12 words, or too many vectors are
            equal.
        UsageError: The mechanism does not protect places or words, ``ids`` is given although the text file contains the
            words, a file already exists, or an output file is also an input file.
    """
    # Check this before doing any work. It is checked again when the file is written.
    read = [vectors, ids]
    check_files({"--out": out}, force=force, read=read)
    problem_class = _problem_class_of(mechanism)
    # The draft contains the files' paths relative to this folder, so the folder must exist.
    with make_parents(out.absolute()):
        if not is_vector_text(vectors):
            drafted = _draft_words(mechanism, problem_class, vectors, ids, out.absolute().parent)
            write_together({out: drafted.text.encode()}, force=force)
            return drafted
        if ids is not None:
            raise UsageError("--ids must be omitted with vectors in text: each line begins with its word")
        array, words = (out.absolute().with_name(f"{out.stem}-{name}") for name in ("vectors.npy", "words.txt"))
        check_files({"--out": [out, array, words]}, force=force, read=read)
        table = read_word_vectors(vectors)
        # The problem is drafted from temporary files, so that no older files are replaced if the problem is rejected.
        with TemporaryDirectory() as temporary:
            temporary_array, temporary_words = (Path(temporary) / path.name for path in (array, words))
            np.save(temporary_array, table.vectors)
            temporary_words.write_text("".join(f"{word}\n" for word in table.words), "utf-8")
            drafted = _draft_words(
                mechanism,
                problem_class,
                temporary_array,
                temporary_words,
                out.absolute().parent,
                stored_files=(array, words),
            )
            files: dict[Path, bytes | Path] = {
                out: drafted.text.encode(),
                array: temporary_array,
                words: temporary_words,
            }
            write_together(files, force=force)
    note = f"the words and vectors of {vectors.name} are in {words.name} and {array.name}"
    return evolve(drafted, notes=(*table.notes, note, *drafted.notes))


def _problem_class_of(mechanism: str) -> type[MetricProblem]:
    """Return the problem class of a mechanism that protects places or words.

    Raises:
        UsageError: The mechanism protects neither places nor words.
    """
    problem_class: type[object] = registry().get(mechanism).load().problem_class
    if not issubclass(problem_class, MetricProblem):
        raise UsageError(
            f"{mechanism} must be over places or words to take --vectors; privopt list names those that are"
        )
    return problem_class


def _draft_words(
    mechanism: str,
    problem_class: type[MetricProblem],
    vectors: Path,
    ids: Path | None,
    folder: Path,
    *,
    stored_files: tuple[Path, Path] | None = None,
) -> Draft:
    """Draft a problem file for words and their vectors, and check that ``solve`` will accept it.

    Args:
        mechanism: The name of the mechanism to draft a problem for.
        problem_class: The mechanism's problem class.
        vectors: A ``.npy`` file of shape (N, dim) with one row per word.
        ids: A text file with one word per line. If None, the row indices are used as words.
        folder: The folder in which the problem file will be stored.
        stored_files: The files to which ``vectors`` and ``ids`` will be moved. The problem file must refer to these
            files. None if ``vectors`` and ``ids`` stay where they are.

    Raises:
        InputError: ``solve`` would reject the vectors or words, there are fewer than 12 words, or too many vectors are
            equal.
    """
    records: dict[str, object] = {"vectors": relative_path(vectors, folder)}
    if ids is not None:
        records["ids"] = relative_path(ids, folder)
    tables: dict[str, dict[str, object]] = {"records": records, "distance": {"kind": "euclidean"}}
    tables |= {"privacy": {"epsilon": 1.0}, "utility": {"kind": "distance"}}
    data = load_drafted_problem(MetricProblem, tables, folder, vectors.name)
    if len(data.records) <= RANKS[0] + 1:
        raise InputError([Fault(vectors.name, "", f"{len(data.records)} words", f"more than {RANKS[0] + 1}")])
    distances_by_rank = neighbour_distances(data)
    # Nearly all words have ten others within this radius. If epsilon * radius is 1, one report changes the odds between
    # a word and each of these by at most a factor of e.
    radius = _distance_quantile(distances_by_rank[RANKS[0]], HIDDEN_SHARE)
    # If most words share their vector with ten others, epsilon would be infinite.
    if not radius > 0:
        raise InputError(
            [Fault(vectors.name, "", f"{RANKS[0]} and more equal vectors", "words apart from one another")]
        )
    # Epsilon is rounded down, because exp(epsilon * radius) must not exceed e.
    epsilon = round_to_digits(1.0 / radius, up=False)
    tables["privacy"] = {"epsilon": epsilon}
    tables |= suggest_tables(problem_class, radius)
    load_drafted_problem(problem_class, tables, folder, vectors.name)
    if stored_files is not None:
        stored_vectors, stored_ids = (relative_path(path, folder) for path in stored_files)
        tables["records"] = {"vectors": stored_vectors, "ids": stored_ids}
    notes = (f"each row of {vectors.name} is read as a word: {len(data.records):,} words",)
    meaning = _describe_epsilon(distances_by_rank, epsilon)
    return Draft(text=format_problem(mechanism, vectors, tables, notes, meaning), notes=(*notes, *meaning))


def _describe_epsilon(distances_by_rank: dict[int, Floats], epsilon: float) -> list[str]:
    """Return notes that explain the proposed epsilon, and give epsilons for hiding words among more other words.

    Args:
        distances_by_rank: The distances returned by :func:`neighbour_distances`.
        epsilon: The proposed epsilon.
    """
    share_text = f"{100 * HIDDEN_SHARE:g} of 100 words"
    lines = [
        f"{epsilon:g}: of {share_text} at least {RANKS[0]} others are so near that one report changes the odds between "
        f"the word and each of them by a factor of at most e, {math.ceil(100 * math.e) / 100:g}"
    ]
    for rank in RANKS[1:]:
        if rank in distances_by_rank:
            radius = _distance_quantile(distances_by_rank[rank], HIDDEN_SHARE)
            lines.append(f"for at least {rank} others: epsilon {round_to_digits(1.0 / radius, up=False):g}")
    medians = [
        f"{_distance_quantile(distances, 0.5):.3g} to the neighbour of rank {rank}"
        for rank, distances in distances_by_rank.items()
    ]
    return [*lines, f"distances, median over the words: {', '.join(medians)}"]
