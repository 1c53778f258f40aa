"""Checks that files outside ``private/`` do not reveal a secret: its bytes, its row order, or values computed from it.

The last property is non-interference (Goguen and Meseguer 1982): if the noisy values are the same for two inputs, all
public files must be the same. A check that does not apply to a mechanism is skipped with a reason of type
``Elsewhere``.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from privopt.errors import PrivoptError
from privopt.files.public_files import artefact, public_bytes, read_public_parts, split_public_files
from privopt.files.release_folder import PRIVATE, REPORT
from privopt.report.write_report import write_report
from privopt.specs import NOTHING
from privopt.testing.checks.base import (
    CONSTANT_RUNS,
    Elsewhere,
    Trial,
    at_epsilon_one,
    at_tiny_epsilon,
    check,
    default_method_only,
)
from privopt.testing.checks.neighbours import NEIGHBOURS_IF_CONSTANT, format_changes, has_neighbours, neighbours_of
from privopt.testing.noise import Answer, answer_by_size, answer_with_ties, watch_noise
from privopt.testing.problems import GeneratedProblem, csv_text
from privopt.testing.under_trial import Subject, error_text
from privopt.testing.variants import csv_table, exports, secret_files

LEAK_RUNS: Final = 24
"""The number of runs. A secret counts as leaked only if all of them publish it.

A noisy count can equal the true count by chance, so a single run is not enough.
"""

MAX_EQUAL_RUNS: Final = 160
"""The maximum number of runs on each of two neighbours when searching for equal releases."""

RUNS_BEFORE_LOOK: Final = 24
"""The number of runs before the first comparison.

After that, the comparison is repeated each time another third of this number of runs has been made.
"""

MIN_EQUAL_RELEASES: Final = 16
"""The number of runs with the same release required for each of two inputs before a difference counts as a fault.

With this number, a public part that is a fair coin toss would be reported with a probability of about one in two
billion.
"""

Parts = dict[str, bytes]
"""The contents of the parts published by a run, by name."""


class _Observation(NamedTuple):
    """The data published by a run, and the true values to which it added noise.

    Attributes:
        released: The contents of the files that make up the release itself (the artefact), by name.
        public: The contents of all public parts, by name.
        noise_inputs: The true values to which noise was added, as a list for each noise call.
    """

    released: Parts
    public: Parts
    noise_inputs: list[list[Any]]


def _encode_secret(secret: bytes) -> Iterator[bytes]:
    """Yield other encodings of a secret: UTF-16, UTF-32 and, for integers, the bytes of an int64 and of a double."""
    text = secret.decode("utf-8", "replace")
    yield text.encode("utf-16-le")
    yield text.encode("utf-32-le")
    # Larger integers may not fit into 64 bits.
    if text.lstrip("-").isdigit() and abs(int(text)) < 2**62:
        yield struct.pack("<q", int(text))
        yield struct.pack("<d", float(text))


def _find_in_public_files(secret: bytes, folder: Path) -> str | None:
    """Return the name of a public file in a release's folder that contains a secret, or None if there is no such file.

    A secret is found if it occurs as a separate word, or anywhere in one of the encodings from :func:`_encode_secret`.
    """
    # Only separate words count, because digits inside a longer number belong to a different number.
    word, encodings = re.compile(rb"(?<![0-9A-Za-z])%b(?![0-9A-Za-z])" % re.escape(secret)), [*_encode_secret(secret)]
    for name, contents in public_bytes(folder):
        if word.search(contents) or any(form in contents for form in encodings):
            return name
    return None


def _has_secrets(subject: Subject) -> str | None:
    """Return the reason why the method's problems have no secret that could leak, or None if they have one.

    Problems have secrets if the release contains noise for privacy, or if the profile lists neighbouring inputs.
    """
    if subject.kind == NOTHING:
        return Elsewhere(f"not for guarantee kind {subject.kind}")
    return None if subject.noisy or subject.profile.neighbours is not None else Elsewhere("the problem holds no secret")


@check("no-secret-leak", needs=_has_secrets, min_examples=10)
def no_secret_leak(trial: Trial) -> None:
    """Check that none of a problem's secrets occurs in a file outside ``private/``.

    The check uses a tiny epsilon, at which noise seldom leaves a true count unchanged. A secret counts as leaked only
    if it occurs in every run.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    if not problem.secrets:
        trial.be_idle()
        return
    problem = at_tiny_epsilon(problem)
    run = trial.run(problem)
    for secret in problem.secrets:
        file_name = _find_in_public_files(secret, run.folder)
        if file_name is None:
            continue
        # In a single run, a noisy value may equal the secret by chance. If this happens in every run, it is not noise.
        if all(
            _find_in_public_files(secret, trial.run(problem, fresh=number).folder) is not None
            for number in range(1, LEAK_RUNS)
        ):
            trial.fail(
                f"the secret {secret.decode('utf-8', 'replace')!r} appears in {file_name}, which is outside "
                f"{PRIVATE}/ (in {LEAK_RUNS} of {LEAK_RUNS} runs)",
                problem,
            )


@check("public-report", version=2, needs=default_method_only, share=0.04, min_examples=1)
def public_report(trial: Trial) -> None:
    """Check that a report page can be made from a release's folder, and that it does not depend on ``private/``.

    The publisher of a release withholds its ``private/`` folder, so readers must be able to make the page without it.
    If the release has no such folder, the comparison is skipped.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    with trial.subject.registered():
        try:
            full_report_bytes = write_report(run.folder).read_bytes()
        except Exception as error:  # any error that the mechanism's code raises is a finding
            trial.fail(f"privopt report raised {error_text(error)}; expected a page", problem)
        # Other checks use the same cached folder, and must not find a report in it.
        (run.folder / REPORT).unlink()
    if not (run.folder / PRIVATE).exists():
        return
    public_folder = trial.subject.new_folder() / run.folder.name
    # Leave out only the top-level folder "private", not other folders with that name.
    shutil.copytree(
        run.folder, public_folder, ignore=lambda folder, names: {PRIVATE} if Path(folder) == run.folder else set()
    )
    with trial.subject.registered(), suppress(PrivoptError):  # some folders cannot be checked without private/
        public_report_bytes = write_report(public_folder).read_bytes()
        if public_report_bytes != full_report_bytes:
            difference = _first_difference(full_report_bytes, public_report_bytes)
            trial.fail(f"report.html tells of {PRIVATE}/: {difference} without it", problem)


UNREAD_COLUMN: Final = "telephone"
"""The name of a column that no mechanism reads."""

UNREAD_VALUE: Final = "0176 2350917"
"""The value in all cells of the column that no mechanism reads."""


@check("unread-columns", version=2, share=0.2, min_examples=8)
def unread_columns(trial: Trial) -> None:
    """Check that the name and values of a column that the mechanism does not read are not published.

    The column is added to each of a problem's tables in turn. A mechanism may reject a table with an additional column
    by raising one of privopt's own errors. Any other error is a fault.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    is_tried = False
    # Try each table in only one example, since every change to a table costs a solve.
    for name in problem.files:
        table = csv_table(problem, name)
        if table is None or not trial.once_only(f"columns of {name}"):
            continue
        head, *rows = table
        planted = problem.with_file(name, csv_text([[*head, UNREAD_COLUMN], *([*row, UNREAD_VALUE] for row in rows)]))
        run = trial.attempt(planted)
        if run.error is not None:
            if not isinstance(run.error, PrivoptError):
                what = f"a column {UNREAD_COLUMN!r} was added to {name}, and solve raised {error_text(run.error)}"
                trial.fail(f"{what}; expected the column refused or ignored", planted)
            continue  # the mechanism does not accept additional columns in this table
        is_tried = True
        for word in (UNREAD_COLUMN, UNREAD_VALUE):
            file_name = _find_in_public_files(word.encode(), run.folder)
            if file_name is not None:
                trial.fail(f"the column {UNREAD_COLUMN!r}, which nothing reads, appears in {file_name}", planted)
    if not is_tried:
        trial.be_idle(Elsewhere("no table of the problems drawn takes a further column"))


# --- leaks of the order and the format of secret files ---------------------------------------------------


@check("order-leak", version=4, of={"noise"}, needs=_has_secrets, share=0.6, min_examples=6)
def order_leak(trial: Trial) -> None:
    """Check that public files reveal nothing about the order or format of the secret files.

    The problem is also solved with the rows of its secret files in another order, or with the files in another format.
    The check fails if a public part is the same in all runs on each form of the problem, but differs between the forms.
    This is tested both with noise drawn as usual and with all noisy values equal. The runs have no seed, because a seed
    may legitimately assign the noise to other rows.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    secret = secret_files(trial.subject.read_problem(problem))
    # The copies are the same problem with its secret files in other forms. Each example tries a randomly chosen copy.
    copies = list(exports(trial.subject.profile, problem, secret, trial.chance(problem)))
    if not copies:
        trial.be_idle("the secret of no problem drawn could be given in another order or format")
    for copy in trial.chance(problem).sample(copies, min(len(copies), 1)):
        # With an epsilon near 0, it practically never happens by chance that a part that depends on noise is constant
        # for each form but differs between the forms.
        for part, pair in _constant_but_different_parts(
            trial, at_tiny_epsilon(problem), at_tiny_epsilon(copy.problem)
        ).items():
            trial.fail(f"{copy.change}, and {part} is always another: {_first_difference(*pair)}", problem)
        # If all noisy values are equal, a ranking consists of ties, which a mechanism might break by the order of rows.
        # Epsilon does not matter here, because no noise is drawn.
        for part, pair in _constant_but_different_parts(trial, problem, copy.problem, answer_with_ties).items():
            trial.fail(
                f"{copy.change}, and where all noisy values are equal {part} is always another: "
                f"{_first_difference(*pair)}; expected ties broken by what is public, or by chance",
                problem,
            )


def _observe(trial: Trial, problem: GeneratedProblem, number: int, answer: Answer | None) -> _Observation | None:
    """Run the pipeline on an input, and return an observation of the run, or None if the run fails.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The input.
        number: The run's number. Calls with the same arguments return the same cached run.
        answer: A function that returns the noisy values, or None to draw them.
    """
    # The run's cache key, which distinguishes runs with different answers to noise calls.
    fresh = number if answer is None else (answer.__name__, number)
    with watch_noise(answer) as calls:
        run = trial.attempt(problem, fresh=fresh)
    if run.error is not None:
        return None
    noise_inputs = [call.values.tolist() for call in calls]
    return _Observation(released=artefact(run.folder), public=split_public_files(run.folder), noise_inputs=noise_inputs)


def _constant_but_different_parts(
    trial: Trial, first: GeneratedProblem, second: GeneratedProblem, answer: Answer | None = None
) -> dict[str, tuple[bytes, bytes]]:
    """Return the public parts that are constant across several runs on each input, but differ between the two inputs.

    A public part is, for example, a whole public file, a column of a public table, or a value in result.json.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        first: One input.
        second: The other input.
        answer: A function that returns the noisy values in all runs, or None to draw them.

    Returns:
        The contents of each such part for both inputs, by the part's name. The result is empty if a run fails, or if
        ``answer`` is given but a run makes no noise call.
    """
    sides: tuple[list[Parts], list[Parts]] = ([], [])
    differing: dict[str, tuple[bytes, bytes]] = {}
    for number in range(CONSTANT_RUNS):
        for observations, problem in zip(sides, (first, second), strict=True):
            observation = _observe(trial, problem, number, answer)
            if observation is None or (answer is not None and not observation.noise_inputs):
                return {}
            observations.append(observation.public)
        # Most differences vanish after a few runs, so the loop seldom runs to its end.
        differing = _constant_differences(*sides)
        if not differing:
            break
    return differing


def _constant_differences(first: Sequence[Parts], second: Sequence[Parts]) -> dict[str, tuple[bytes, bytes]]:
    """Return the parts that are constant across all runs on each of two inputs, but differ between the inputs.

    Args:
        first: The public parts of each run on one input.
        second: The public parts of each run on the other input.

    Returns:
        The contents of each such part for both inputs, by the part's name. If a part is missing for an input, its
        contents are empty.
    """
    differing = {}
    for name in {**first[0], **second[0]}:
        first_part, second_part = first[0].get(name), second[0].get(name)
        if (
            first_part != second_part
            and all(p.get(name) == first_part for p in first)
            and all(p.get(name) == second_part for p in second)
        ):
            differing[name] = first_part or b"", second_part or b""
    return differing


@check("fresh-noise", version=4, of={"noise"}, needs=has_neighbours, share=0.2, min_examples=3)
def fresh_noise(trial: Trial) -> None:
    """Check that each run without a seed draws new noise.

    Equal releases do not prove that no noise was drawn, because one of the possible releases may be almost certain. It
    is then almost certain for neighbours as well. The check therefore fails only if an input always gives the same
    release and a neighbour always gives a different one.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = at_tiny_epsilon(trial.problem())
    artefact_files, second_files = (artefact(trial.run(problem, fresh=number).folder) for number in (0, 1))
    # If two runs published different releases, noise was drawn, and there is nothing left to check.
    for neighbour in neighbours_of(trial, problem, NEIGHBOURS_IF_CONSTANT) if artefact_files == second_files else ():
        for name, pair in _constant_but_different_parts(trial, problem, at_tiny_epsilon(neighbour)).items():
            if name in artefact_files:  # other parts are covered by the non-interference check
                trial.fail(
                    f"runs without a seed always publish the same {name}, and for a neighbour always another: "
                    f"{_first_difference(*pair)}; noise must be drawn again for each run. The neighbour:\n"
                    f"{format_changes(problem, neighbour)}",
                    problem,
                )


# --- public files other than the release --------------------------------------------------------------


MAX_NEIGHBOUR_STEPS: Final = 60
"""The exclusive upper limit on the number of steps to a distant input.

Such an input is far enough away that even rounded values differ.
"""


@check("non-interference", version=2, of={"noise"}, needs=has_neighbours, share=0.6, min_examples=6)
def non_interference(trial: Trial) -> None:
    """Check that two inputs with equal releases produce equal public files, apart from times.

    If the files differ, something other than the noisy release depends on the secret. To make the releases equal, every
    noise call returns the same noisy values for both inputs. This has no effect on a mechanism that draws its noise
    elsewhere. For such a mechanism, the check compares only the public parts that do not vary between runs on the same
    input, and the values in result.json of runs whose releases happen to be equal.

    The second input is either a neighbour of the first or the end of a chain of neighbours. If the files differ between
    the ends of the chain, they also differ between two successive inputs in it.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    neighbours = neighbours_of(trial, problem)
    if not neighbours:
        trial.be_idle()
        return
    neighbour = trial.chance(problem).choice(neighbours)
    # In every second example, compare the problem with a distant input, with which rounded values differ as well.
    if trial.history.examples % 2:
        compared = _distant_neighbour(trial, neighbour)
        follows = _follows_from_noise(trial, problem, compared)
    else:
        compared, follows = neighbour, _follows_from_noise(trial, problem, neighbour)
    # If equal answers did not make the releases equal, compare runs whose releases happen to be equal.
    if not follows:
        for part, pair in _constant_but_different_parts(
            trial, at_tiny_epsilon(problem), at_tiny_epsilon(compared)
        ).items():
            trial.fail(f"{part} is always another for a neighbour: {_first_difference(*pair)}", problem)
        for change in (at_tiny_epsilon, at_epsilon_one):
            _check_equal_releases(trial, change(problem), change(neighbour))


def _distant_neighbour(trial: Trial, problem: GeneratedProblem) -> GeneratedProblem:
    """Return a problem reached from a given one in 30 to 59 steps, each to a neighbour.

    Each step goes to the neighbour at the same position in the profile's list, so that the changes accumulate. A step
    may, for instance, add another person.

    Args:
        trial: A single run of the check. The profile of its subject lists the neighbours.
        problem: The problem from which the steps start.
    """
    list_neighbours = trial.subject.profile.neighbours
    assert list_neighbours is not None  # has_neighbours
    chance = trial.chance(problem)
    # Choose one of the first eight positions in the profile's list, because the list may be long or endless.
    position = chance.randrange(8)
    for _ in range(chance.randrange(MAX_NEIGHBOUR_STEPS // 2, MAX_NEIGHBOUR_STEPS)):
        neighbours = list(islice(list_neighbours(problem), position + 1))
        problem = neighbours[-1] if neighbours else problem
    return problem


def _follows_from_noise(trial: Trial, problem: GeneratedProblem, neighbour: GeneratedProblem) -> bool:
    """Fail if the public results for two inputs differ even though every noise call returned the same values for both.

    Each input is run a second time, to detect any other source of randomness. A difference counts only if it persists
    across :data:`CONSTANT_RUNS` runs, which a random difference would not. Runs on the two inputs alternate, so that a
    dependence on the clock affects both equally.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: One input.
        neighbour: The other input.

    Returns:
        False if the comparison is inconclusive because the release is not determined by the noisy values alone. True in
        all other cases, even if a run failed.
    """
    sides: tuple[list[_Observation], list[_Observation]] = ([], [])
    for number in range(CONSTANT_RUNS):
        for observations, input_problem in zip(sides, (problem, neighbour), strict=True):
            observation = _observe(trial, input_problem, number, answer_by_size)
            # A failed run publishes nothing to compare. A run without noise calls may draw its noise elsewhere.
            if observation is None or not observation.noise_inputs:
                return observation is None
            observations.append(observation)
        first_observation, second_observation = (observations[0] for observations in sides)
        # If an input's releases differ although the answers are the same, something else is random, so equal answers do
        # not make releases equal.
        if any(observations[0].released != observations[-1].released for observations in sides):
            return False
        if (
            first_observation.released != second_observation.released
            and first_observation.noise_inputs == second_observation.noise_inputs
        ):
            return False  # the releases differ but the values under the noise do not, so the secret enters elsewhere
        differing = _constant_differences(
            *([observation.public for observation in observations] for observations in sides)
        )
        # Do not return after the first run, because only a second run shows whether anything else is random.
        if number and not differing:
            return True
    # If the loop ends without returning, some parts differed in every run.
    description = (
        "the release was made equal"
        if first_observation.released == second_observation.released
        else "all noise was answered alike"
    )
    for name, pair in differing.items():
        trial.fail(
            f"{description} for a neighbour, and {name} differs: {_first_difference(*pair)}. The neighbour:\n"
            f"{format_changes(problem, neighbour)}",
            problem,
        )
    return True


def _check_equal_releases(trial: Trial, problem: GeneratedProblem, neighbour: GeneratedProblem) -> None:
    """Run two neighbours many times, and fail if a public part always differs even though the releases are equal.

    A difference between two runs with the same release is suspicious. It counts as a finding once each input has
    :data:`MIN_EQUAL_RELEASES` runs with that release. The runs stop early if there is a finding, or if there is no
    suspicious difference after several runs.

    Args:
        trial: A single run of the check.
        problem: One input.
        neighbour: The other input.
    """
    parts_by_release: list[dict[str, list[Parts]]] = [{}, {}]
    for number in range(MAX_EQUAL_RUNS):
        for releases, input_problem in zip(parts_by_release, (problem, neighbour), strict=True):
            run = trial.attempt(input_problem, fresh=number)
            if run.error is not None:
                return
            # Group runs by their release, using the text of all its files as the key.
            releases.setdefault(repr(artefact(run.folder)), []).append(read_public_parts(run.folder))
        if number + 1 >= RUNS_BEFORE_LOOK and (number + 1) % (RUNS_BEFORE_LOOK // 3) == 0:
            if any(True for _ in _differing_parts(parts_by_release, MIN_EQUAL_RELEASES)):
                break
            if not any(True for _ in _differing_parts(parts_by_release, 1)):
                return
    for counts, name, pair in _differing_parts(parts_by_release, MIN_EQUAL_RELEASES):
        trial.fail(
            f"of {counts[0]} and {counts[1]} runs that released the same, {name} is always another for a neighbour: "
            f"{_first_difference(*pair)}. The neighbour:\n{format_changes(problem, neighbour)}",
            problem,
        )


def _differing_parts(
    sides: Sequence[Mapping[str, list[Parts]]], min_runs: int
) -> Iterator[tuple[list[int], str, tuple[bytes, bytes]]]:
    """Yield the public parts that are constant on each of two inputs but differ between them, given the same release.

    Args:
        sides: For each of the two inputs, a mapping from releases to the public parts of the runs that produced them.
        min_runs: The minimum number of runs with the same release on each input.

    Yields:
        The number of runs on each input, the name of the part, and its contents for both inputs.
    """
    for release in sides[0].keys() & sides[1].keys():
        runs = [releases[release] for releases in sides]
        counts = list(map(len, runs))
        if min(counts) >= min_runs:
            for name, pair in _constant_differences(*runs).items():
                yield counts, name, pair


def _first_difference(first: bytes, second: bytes) -> str:
    """Return a clause for messages that says where two files first differ, with excerpts from both."""
    # If one file is a prefix of the other, they differ where the shorter one ends.
    offset = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    start = max(0, offset - 20)
    excerpts = [
        repr(contents[start : start + 80].decode("utf-8", "replace")) if contents else "nothing"
        for contents in (first, second)
    ]
    return f"about byte {offset + 1} it is {excerpts[0]} here and {excerpts[1]} there"
