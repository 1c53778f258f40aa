"""Checks that nothing secret is outside ``private/``: not as bytes, not as an order, not as any function of it."""

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
from privopt.testing.checks.base import CONSTANT_RUNS, Elsewhere, Trial, at_little, at_one, by_default, check
from privopt.testing.checks.neighbours import NEIGHBOURS_IF_CONSTANT, has_neighbours, neighbours_of, news
from privopt.testing.noise import Answer, same, tied, watched
from privopt.testing.problems import GeneratedProblem, csv_text
from privopt.testing.under_trial import Subject
from privopt.testing.variants import csv_table, exports, secret_files

LEAK_RUNS: Final = 24
"""Runs in all of which a secret must stand to be called a leak: a count under little noise often comes out as it is."""

MAX_EQUAL_RUNS: Final = 160
"""Runs on each of two neighbours, at most, among which equal releases are looked for, while something is suspected."""

RUNS_BEFORE_LOOK: Final = 24
"""Runs after which what was seen is looked at, and a third as many between looks from then on."""

MIN_EQUAL_RELEASES: Final = 16
"""Equal releases on each side that must all agree: a coin is blamed once in a billion, however many runs."""

Parts = dict[str, bytes]
"""Parts of what a run published, by name."""


class _Look(NamedTuple):
    """One run on an input: the artefact, all that is public, and what each call of the noise was to add noise to."""

    released: Parts
    public: Parts
    asked: list[list[Any]]


def _coded(secret: bytes) -> Iterator[bytes]:
    """Yield a secret as text in two encodings and, where it is a number, as eight bytes of either kind."""
    text = secret.decode("utf-8", "replace")
    yield text.encode("utf-16-le")
    yield text.encode("utf-32-le")
    if text.lstrip("-").isdigit() and abs(int(text)) < 2**62:
        yield struct.pack("<q", int(text))
        yield struct.pack("<d", float(text))


def _stands(secret: bytes, folder: Path) -> str | None:
    """Return the name of a public file that contains a secret as a word or number."""
    word, coded = re.compile(rb"(?<![0-9A-Za-z])%b(?![0-9A-Za-z])" % re.escape(secret)), [*_coded(secret)]
    for name, contents in public_bytes(folder):
        if word.search(contents) or any(form in contents for form in coded):
            return name
    return None


def _is_secretive(subject: Subject) -> str | None:
    if subject.kind == NOTHING:
        return Elsewhere(f"not for guarantee kind {subject.kind}")
    return None if subject.noisy or subject.profile.neighbours is not None else Elsewhere("the problem holds no secret")


@check("no-secret-leak", needs=_is_secretive, min_examples=10)
def no_secret_leak(trial: Trial) -> None:
    """Check that no planted secret is in a file outside private/."""
    problem = trial.problem()
    if not problem.secrets:
        return
    problem = at_little(problem)
    run = trial.run(problem)
    for secret in problem.secrets:
        where = _stands(secret, run.folder)
        if where is None:
            continue
        if all(_stands(secret, trial.run(problem, fresh=number).folder) is not None for number in range(1, LEAK_RUNS)):
            trial.fail(
                f"the secret {secret.decode('utf-8', 'replace')!r} stands in {where}, which is outside {PRIVATE}/ "
                f"(in {LEAK_RUNS} of {LEAK_RUNS} runs)",
                problem,
            )


@check("public-report", needs=lambda subject: by_default(subject) or _is_secretive(subject), share=0.04, min_examples=1)
def public_report(trial: Trial) -> None:
    """Check that the report of a folder with private/ is that of the published one, without it."""
    problem, run = trial.solved()
    bare = trial.subject.new_folder() / run.folder.name
    shutil.copytree(run.folder, bare, ignore=lambda folder, names: {PRIVATE} if Path(folder) == run.folder else set())
    with trial.subject.registered(), suppress(PrivoptError):  # what needs private/ to be checked has no public report
        alone, whole = (write_report(folder).read_bytes() for folder in (bare, run.folder))
        (run.folder / REPORT).unlink()
        if alone != whole:
            trial.fail(f"report.html tells of {PRIVATE}/: {_first_difference(whole, alone)} without it", problem)


UNREAD: Final = "telephone"
"""Column that no mechanism asks for."""

NUMBER: Final = "0176 2350917"
"""What is in it."""


@check("unread-columns", share=0.2, min_examples=8)
def unread_columns(trial: Trial) -> None:
    """Check that columns which the mechanism does not read are not published."""
    problem = trial.problem()
    for name in problem.files:
        table = csv_table(problem, name)
        if table is None or not trial.once_only(f"columns of {name}"):
            continue
        head, *rows = table
        planted = problem.with_file(name, csv_text([[*head, UNREAD], *([*row, NUMBER] for row in rows)]))
        run = trial.attempt(planted)
        if run.error is not None:
            continue  # it may hold no other column
        for word in (UNREAD, NUMBER):
            where = _stands(word.encode(), run.folder)
            if where is not None:
                trial.fail(f"the column {UNREAD!r}, which nothing reads, stands in {where}", planted)


# --- what the order and the form of the secret tell ------------------------------------------------------


@check("order-leak", version=4, of={"noise"}, needs=_is_secretive, share=0.6, min_examples=6)
def order_leak(trial: Trial) -> None:
    """Check that public files reveal nothing of how the secret was written.

    The secret is also given in another row order and in other forms. No public part may be constant for each form and
    differ between forms: neither under fresh noise, nor if all noisy values are tied. Runs are without a seed: with
    one, the noise may rightly fall on other rows.
    """
    problem = trial.problem()
    secret = secret_files(trial.subject.declared(problem))
    copies = list(exports(trial.subject.profile, problem, secret, trial.chance(problem)))
    for copy in trial.chance(problem).sample(copies, min(len(copies), 1)):
        for part, pair in _always_different(trial, at_little(problem), at_little(copy.problem)).items():
            trial.fail(f"{copy.change}, and {part} is always another: {_first_difference(*pair)}", problem)
        for part, pair in _always_different(trial, problem, copy.problem, tied).items():
            trial.fail(
                f"{copy.change}, and where all noisy values are equal {part} is always another: "
                f"{_first_difference(*pair)}; expected ties broken by what is public, or by chance",
                problem,
            )


def _look(trial: Trial, problem: GeneratedProblem, number: int, answer: Answer | None) -> _Look | None:
    """Run once more on an input; None where that is not solved, which publishes nothing."""
    fresh = number if answer is None else (answer.__name__, number)
    with watched(answer) as calls:
        run = trial.attempt(problem, fresh=fresh)
    if run.error is not None:
        return None
    asked = [call.values.tolist() for call in calls]
    return _Look(released=artefact(run.folder), public=split_public_files(run.folder), asked=asked)


def _always_different(
    trial: Trial, one: GeneratedProblem, two: GeneratedProblem, answer: Answer | None = None
) -> dict[str, tuple[bytes, bytes]]:
    """Return the public parts that tell two inputs apart in each of some runs; none where no noise can be answered."""
    sides: tuple[list[Parts], list[Parts]] = ([], [])
    found: dict[str, tuple[bytes, bytes]] = {}
    for number in range(CONSTANT_RUNS):
        for side, each in zip(sides, (one, two), strict=True):
            look = _look(trial, each, number, answer)
            if look is None or (answer is not None and not look.asked):
                return {}
            side.append(look.public)
        found = _constant_differences(*sides)
        if not found:
            break
    return found


def _constant_differences(one: Sequence[Parts], two: Sequence[Parts]) -> dict[str, tuple[bytes, bytes]]:
    """Return the parts that are one thing in all runs on one input, and another, or missing, in all on the other."""
    found = {}
    for name in {**one[0], **two[0]}:
        here, there = one[0].get(name), two[0].get(name)
        if here != there and all(p.get(name) == here for p in one) and all(p.get(name) == there for p in two):
            found[name] = here or b"", there or b""
    return found


@check("fresh-noise", version=4, of={"noise"}, needs=has_neighbours, share=0.2, min_examples=3)
def fresh_noise(trial: Trial) -> None:
    """Check that without a seed noise is drawn afresh each time.

    An outcome may be all but certain, and then it is so for neighbours, too: only where one input always gives one
    thing and its neighbour always another is nothing drawn.
    """
    problem = at_little(trial.problem())
    first, again = (artefact(trial.run(problem, fresh=number).folder) for number in (0, 1))
    for neighbour in neighbours_of(trial, problem, NEIGHBOURS_IF_CONSTANT) if first == again else ():
        for name, pair in _always_different(trial, problem, at_little(neighbour)).items():
            if name in first:
                trial.fail(
                    f"runs without a seed always publish the same {name}, and for a neighbour always another: "
                    f"{_first_difference(*pair)}; noise must be drawn again for each run. The neighbour:\n"
                    f"{news(problem, neighbour)}",
                    problem,
                )


# --- what accompanies a release -----------------------------------------------------------------------


MAX_NEIGHBOUR_STEPS: Final = 60
"""Neighbours of neighbours, at most, that an input is away: a figure that is rounded changes with few of them."""


@check("non-interference", version=2, of={"noise"}, needs=has_neighbours, share=0.6, min_examples=6)
def non_interference(trial: Trial) -> None:
    """Check that inputs with equal releases, neighbours and others, have equal public files except for times.

    Releases are made equal by answering every call of the noise alike. Where a mechanism draws noise of its own, what
    is always the same for one input must be the same for its neighbour, and runs are compared whose releases came out
    equal. What differs between inputs that are many neighbours apart differs between two of them.
    """
    problem = trial.problem()
    near = neighbours_of(trial, problem)
    if not near:
        return
    other = trial.chance(problem).choice(near)
    if trial.history.examples % 2:
        far = _away(trial, other)
        alike = _answered_alike(trial, problem, far)
    else:
        far, alike = other, _answered_alike(trial, problem, other)
    if not alike:
        for part, pair in _always_different(trial, at_little(problem), at_little(far)).items():
            trial.fail(f"{part} is always another for a neighbour: {_first_difference(*pair)}", problem)
        for change in (at_little, at_one):
            _equal_by_chance(trial, change(problem), change(other))


def _away(trial: Trial, problem: GeneratedProblem) -> GeneratedProblem:
    """Return a neighbour's neighbour's neighbour: by one step again and again, so that it leads away."""
    make = trial.subject.profile.neighbours
    assert make is not None  # has_neighbours
    chance = trial.chance(problem)
    which = chance.randrange(8)
    for _ in range(chance.randrange(MAX_NEIGHBOUR_STEPS // 2, MAX_NEIGHBOUR_STEPS)):
        near = list(islice(make(problem), which + 1))
        problem = near[-1] if near else problem
    return problem


def _answered_alike(trial: Trial, problem: GeneratedProblem, other: GeneratedProblem) -> bool:
    """Compare under noise that is answered alike; False where that does not make the release follow from it.

    The second look at each input shows what is drawn afresh all the same; what still differs after it is looked at for
    as long as a coin might. Inputs take turns, so that the time of day changes on both sides.
    """
    sides: tuple[list[_Look], list[_Look]] = ([], [])
    for number in range(CONSTANT_RUNS):
        for side, each in zip(sides, (problem, other), strict=True):
            look = _look(trial, each, number, same)
            if look is None or not look.asked:
                return look is None
            side.append(look)
        first, second = (side[0] for side in sides)
        if any(side[0].released != side[-1].released for side in sides):
            return False
        if first.released != second.released and first.asked == second.asked:
            return False  # noise is added to nothing that changes: the secret comes in elsewhere, as with own noise
        found = _constant_differences(*([look.public for look in side] for side in sides))
        if number and not found:
            return True
    which = "the release was made equal" if first.released == second.released else "all noise was answered alike"
    for name, pair in found.items():
        trial.fail(
            f"{which} for a neighbour, and {name} differs: {_first_difference(*pair)}. The neighbour:\n"
            f"{news(problem, other)}",
            problem,
        )
    return True


def _equal_by_chance(trial: Trial, problem: GeneratedProblem, other: GeneratedProblem) -> None:
    """Compare what accompanies releases that came out equal: a few runs to suspect something, many to say it."""
    found: list[dict[str, list[Parts]]] = [{}, {}]
    for number in range(MAX_EQUAL_RUNS):
        for side, each in zip(found, (problem, other), strict=True):
            run = trial.attempt(each, fresh=number)
            if run.error is not None:
                return
            side.setdefault(repr(artefact(run.folder)), []).append(read_public_parts(run.folder))
        if number + 1 >= RUNS_BEFORE_LOOK and (number + 1) % (RUNS_BEFORE_LOOK // 3) == 0:
            if any(True for _ in _apart(found, MIN_EQUAL_RELEASES)):
                break
            if not any(True for _ in _apart(found, 1)):
                return
    for counts, name, pair in _apart(found, MIN_EQUAL_RELEASES):
        trial.fail(
            f"of {counts[0]} and {counts[1]} runs that released the same, {name} is always another for a neighbour: "
            f"{_first_difference(*pair)}. The neighbour:\n{news(problem, other)}",
            problem,
        )


def _apart(
    sides: Sequence[Mapping[str, list[Parts]]], min_runs: int
) -> Iterator[tuple[list[int], str, tuple[bytes, bytes]]]:
    """Yield parts that always are one thing beside one input's release, and another beside the other's equal one."""
    for release in sides[0].keys() & sides[1].keys():
        runs = [side[release] for side in sides]
        counts = list(map(len, runs))
        if min(counts) >= min_runs:
            for name, pair in _constant_differences(*runs).items():
                yield counts, name, pair


def _first_difference(one: bytes, two: bytes) -> str:
    place = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    start = max(0, place - 20)
    shown = [repr(each[start : start + 80].decode("utf-8", "replace")) if each else "nothing" for each in (one, two)]
    return f"about byte {place + 1} it is {shown[0]} here and {shown[1]} there"
