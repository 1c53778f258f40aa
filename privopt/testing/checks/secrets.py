"""Checks that nothing secret is outside ``private/``: not as bytes, not as an order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Final

from privopt.run.folder import PRIVATE
from privopt.testing.checks.base import LITTLE, SEED, Trial, check
from privopt.testing.exports import exports, secret_files
from privopt.testing.noise import answered
from privopt.testing.problems import GeneratedProblem
from privopt.testing.public import public_bytes, published
from privopt.testing.under_trial import Subject

__all__: list[str] = []

AGAIN: Final = 4
"""Runs in all of which a secret must stand to be called a leak."""

CONSTANT: Final = 12
"""Runs on each of two neighbours in which something public must be the same to be called no matter of chance.

Under an epsilon near 0 an event has nearly the same probability p for both, and p**12 (1 - p)**12 is below 1e-7.
"""


def _forms(secret: bytes) -> Iterator[bytes]:
    """A secret as text in two encodings and, where it is a number, as eight bytes of either kind."""
    yield secret
    text = secret.decode("utf-8", "replace")
    yield text.encode("utf-16-le")
    yield text.encode("utf-32-le")
    if text.lstrip("-").isdigit() and abs(int(text)) < 2**62:
        import struct

        yield struct.pack("<q", int(text))
        yield struct.pack("<d", float(text))


def _stands(secret: bytes, folder: Path) -> str | None:
    """Name of a public file that a secret stands in, as a word or number of its own."""
    for name, contents in public_bytes(folder):
        for form in _forms(secret):
            start = contents.find(form)
            while start >= 0:
                before, after = contents[start - 1 : start], contents[start + len(form) : start + len(form) + 1]
                inside = form == secret and (before[-1:].isalnum() or after[:1].isalnum())
                if not inside:
                    return name
                start = contents.find(form, start + 1)
    return None


def _is_secretive(subject: Subject) -> str | None:
    return None if subject.noisy or subject.profile.neighbours is not None else "the problem holds no secret"


@check("no-secret-leak", claimed=True, needs=_is_secretive, least=10)
def no_secret_leak(trial: Trial) -> None:
    """No planted secret stands in a file outside private/."""
    problem = trial.problem()
    if not problem.secrets:
        return
    if problem.get("privacy.epsilon") is not None:
        problem = problem.with_key("privacy.epsilon", LITTLE)
    run = trial.run(problem)
    for secret in problem.secrets:
        where = _stands(secret, run.folder)
        if where is None:
            continue
        others = [trial.run(problem, fresh=number) for number in range(1, AGAIN)]
        if all(_stands(secret, other.folder) is not None for other in others):
            trial.fail(
                f"the secret {secret.decode('utf-8', 'replace')!r} stands in {where}, which is outside {PRIVATE}/ "
                f"(in {AGAIN} of {AGAIN} runs)",
                problem,
            )


# --- what the order and the form of the secret tell ------------------------------------------------------


@check("order-leak", version=2, families={"noise"}, needs=_is_secretive, share=0.6, least=6)
def order_leak(trial: Trial) -> None:
    """Public files are the same however the secret is written down, and for neighbours wherever the noise is the same.

    Copies of the secret in another row order and in other forms must give equal public files under the same seed.
    Neighbours, written in those ways too, must give equal ones where every call of the noise is answered alike; where
    the mechanism draws noise of its own, what is always the same for one input must be the same for its neighbour.
    """
    problem = trial.problem()
    copies = list(exports(trial.subject.profile, problem, _secret(trial, problem), trial.chance(problem)))
    for copy in trial.chance(problem).sample(copies, min(len(copies), 1)):
        for part, difference in _always_different(trial, problem, copy.problem, runs=2, seed=SEED):
            trial.fail(f"{copy.change}, and {part} is another under the same seed: {difference}", problem)
    make = trial.subject.profile.neighbours
    near = [] if make is None else list(islice(make(problem), 40))
    if not near:
        return
    if problem.get("privacy.epsilon") is not None:
        problem, near = _with_little(problem), [_with_little(each) for each in near]
    other: GeneratedProblem = trial.chance(problem).choice(near)
    pairs = [(problem, other, ""), *_both_written_anew(trial, problem, other)]
    one, two, change = trial.chance(other).choice(pairs)
    for part, difference in _always_different(trial, one, two, runs=CONSTANT, alike=True):
        trial.fail(f"{change}{part} is always another for a neighbour: {difference}", one)


def _with_little(problem: GeneratedProblem) -> GeneratedProblem:
    return problem.with_key("privacy.epsilon", LITTLE)


def _secret(trial: Trial, problem: GeneratedProblem) -> list[str]:
    return secret_files(trial.subject.declared(problem))


def _both_written_anew(
    trial: Trial, problem: GeneratedProblem, other: GeneratedProblem
) -> Iterator[tuple[GeneratedProblem, GeneratedProblem, str]]:
    """A problem and its neighbour, each exported in the same ways but with rows in an order of its own."""
    secret = _secret(trial, problem)
    pair = [list(exports(trial.subject.profile, each, secret, trial.chance(each))) for each in (problem, other)]
    changes = {variant.change: variant.problem for variant in pair[1]}
    for variant in pair[0]:
        if variant.change in changes:
            yield variant.problem, changes[variant.change], f"both: {variant.change}; then "


def _always_different(
    trial: Trial,
    one: GeneratedProblem,
    two: GeneratedProblem,
    *,
    runs: int,
    alike: bool = False,
    seed: int | None = None,
) -> Iterator[tuple[str, str]]:
    """Public parts that are the same in all of some runs on each of two inputs, and differ between the two.

    Args:
        trial: the example.
        one: a problem.
        two: another.
        runs: how many on each.
        alike: whether calls of the noise are answered alike.
        seed: of the runs.
    """
    suspects: dict[str, tuple[bytes, bytes]] = {}
    for number in range(runs):
        parts = []
        for problem in (one, two):
            with answered() if alike else nullcontext():
                run = trial.attempt(problem, fresh=("alike", number) if alike else number, seed=seed)
            if run.error is not None:
                return  # that it is not solved, or written another way is refused, publishes nothing
            parts.append(published(run.folder))
        first, second = parts
        if number == 0:
            suspects = {
                name: (first.get(name, b""), second.get(name, b""))
                for name in {**first, **second}
                if first.get(name) != second.get(name)
            }
        else:
            now = {name: (first.get(name, b""), second.get(name, b"")) for name in suspects}
            suspects = {name: pair for name, pair in suspects.items() if now[name] == pair}
        if not suspects:
            return
    for name, pair in suspects.items():
        yield name, _first_difference(*pair)


def _first_difference(one: bytes, two: bytes) -> str:
    try:
        lines = [contents.decode("utf-8").splitlines() for contents in (one, two)]
    except UnicodeDecodeError:
        place = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
        return f"byte {place + 1} of {len(one)} here and of {len(two)} there"
    place = next((n for n, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    shown = [repr(each[place][:80]) if place < len(each) else "nothing" for each in lines]
    return f"line {place + 1} is {shown[0]} here and {shown[1]} there"
