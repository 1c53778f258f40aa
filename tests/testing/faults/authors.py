"""Mechanisms as authors write them from papers: optimised unary encoding, permute-and-flip, a closed-form matrix.

Each is right, and with one fault each; those of one-sided DP are in :mod:`faults.one_sided`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st

from faults.choice import FAR_FLIPS, Chosen, RightFlips, flip_shares
from faults.drawn import Budget
from faults.matrix import RightMatrix
from privopt.declare import between, key
from privopt.errors import Fault, InputError, UsageError
from privopt.interfaces import Certificate, Channel, Guarantee, Mechanism, Outcome, Release, UtilityLoss
from privopt.interfaces.notions import LocalDP
from privopt.numbers import TOTAL, exp_fixed
from privopt.numbers.sampling import draw, make_source
from privopt.testing import GeneratedProblem, Profile, to_toml
from privopt_metric_dp.matrix.release import MatrixRelease

BITS = 128
"""Binary digits behind the point to which exp(epsilon) is enclosed."""

# --- optimised unary encoding (Wang, Blocki, Li and Jha 2017) --------------------------------------------


@frozen(kw_only=True)
class ItemProblem:
    """So many items, of which each sender has one."""

    items: int = key(help="how many items there are", check=between(1, 7))
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True)
class TwoBits(LocalDP[Any]):
    """The odds of the two bits in which the encodings of two items differ."""

    epsilon: Fraction
    counted: ClassVar[int] = 2

    @property
    def guarantee(self) -> Guarantee:
        words = "Whatever is reported is at most exp(epsilon) times as likely for one item as for another."
        return Guarantee(kind="local-dp", epsilon=self.epsilon, unit="per report", scope="one item", statement=words)

    def measure(self, release: Any) -> Certificate:
        low, _ = exp_fixed(min(self.epsilon, Fraction(80)), BITS)
        true, other = Fraction(release.true, TOTAL), Fraction(release.other, TOTAL)
        odds = true * (1 - other) / ((1 - true) * other) if self.counted == 2 else true / other
        return Certificate(
            holds=odds * (1 << BITS) <= low,
            evidence="proved",
            kind=self.kind,
            worst=float(self.epsilon),
            allowed=float(self.epsilon),
            checked=self.counted,
            arithmetic="whole numbers, exp enclosed to 128 binary digits",
        )


@frozen(kw_only=True, eq=False)
class UnaryRelease(Release):
    """A bit for each item, 1 with weight ``true`` for the sender's item and with weight ``other`` for any other."""

    items: int
    true: int
    other: int

    def write(self, folder: Path) -> None:
        (folder / "bits.txt").write_text(f"{self.items} {self.true} {self.other}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        try:
            items, true, other = map(int, (folder / "bits.txt").read_text("utf-8").split())
        except ValueError:
            raise InputError([Fault("bits.txt", "", "another text", "items and two weights")]) from None
        if not (items == problem.items and 0 < other <= true < TOTAL):
            raise InputError([Fault("bits.txt", "", "other numbers", "items, and two weights below 2**63")])
        return cls(items=items, true=true, other=other)

    def weights_of(self, input_id: str) -> list[int]:
        if input_id not in map(str, range(self.items)):
            raise UsageError(f"item: expected 0 to {self.items - 1}, got {input_id!r}")
        return [self.true if item == int(input_id) else self.other for item in range(self.items)]

    def sample(self, input_id: str, count: int) -> list[str]:
        columns = [
            draw(np.array([TOTAL - weight, weight], dtype=np.uint64), count) for weight in self.weights_of(input_id)
        ]
        return ["".join(map(str, bits)) for bits in np.stack(columns, axis=1).tolist()]

    def channel(self) -> Channel | None:
        inputs = [str(item) for item in range(self.items)]
        chances = [[weight / TOTAL for weight in self.weights_of(name)] for name in inputs]
        reports = list(product((0, 1), repeat=self.items))
        rows = [[float(np.prod(np.where(bits, row, 1 - np.array(row)))) for bits in reports] for row in chances]
        return Channel(
            inputs=inputs, outputs=["".join(map(str, bits)) for bits in reports], probabilities=np.array(rows)
        )


@frozen(kw_only=True)
class FalseBits(UtilityLoss[Any]):
    """Share of other items whose bit is 1."""

    unit: str = "share"

    def evaluate(self, release: Any) -> float:
        return float(release.other / TOTAL)


class RightUnary(Mechanism[Any, Any]):
    """Keeps the bit of the item with probability 1/2, and sets any other with probability 1 / (exp(epsilon) + 1)."""

    problem_class = ItemProblem
    release_class: Any = UnaryRelease
    kit = "faults.authors:ITEMS"
    notion_class: Any = TwoBits

    def privacy(self, problem: Any, method: str) -> TwoBits:
        notion: TwoBits = self.notion_class(epsilon=problem.privacy.epsilon)
        return notion

    def utility(self, problem: Any, method: str) -> UtilityLoss[Any]:
        return FalseBits()

    def true_weight(self, other: int) -> int:
        return TOTAL // 2

    def solve(self, problem: Any, context: Any) -> Outcome[Any]:
        low, _ = exp_fixed(min(problem.privacy.epsilon, Fraction(40)), BITS)
        other = -(-(TOTAL << BITS) // (low + (1 << BITS)))  # rounded up
        return Outcome(release=self.release_class(items=problem.items, true=self.true_weight(other), other=other))


@frozen(kw_only=True)
class _OneBit(TwoBits):
    counted: ClassVar[int] = 1


class HonestUnaryTwice(RightUnary):
    """Both bits at the odds of epsilon, which are 2 epsilon together; measured honestly."""

    def true_weight(self, other: int) -> int:
        return TOTAL - other


class OneBitCounted(HonestUnaryTwice):
    """The same, and the measure counts one of the two bits."""

    notion_class = _OneBit


@frozen(kw_only=True, eq=False)
class _NoChannel(UnaryRelease):
    def channel(self) -> Channel | None:
        return None


class OneBitNoChannel(OneBitCounted):
    """The same, and nothing is stated of the reports."""

    release_class = _NoChannel


_GENERATOR = np.random.default_rng(12345)


@frozen(kw_only=True, eq=False)
class _SeededBits(UnaryRelease):
    def generator(self) -> np.random.Generator:
        return np.random.default_rng(7)

    def sample(self, input_id: str, count: int) -> list[str]:
        chances = np.array(self.weights_of(input_id)) / TOTAL
        bits = self.generator().random((count, self.items)) < chances
        return ["".join(map(str, row)) for row in bits.astype(int).tolist()]


class UnarySeeded(RightUnary):
    """Draws each batch from the same seed."""

    release_class = _SeededBits


@frozen(kw_only=True, eq=False)
class _ModuleBits(_SeededBits):
    def generator(self) -> np.random.Generator:
        return _GENERATOR


class UnaryModuleGenerator(RightUnary):
    """Draws from a generator of the module, which each process seeds alike."""

    release_class = _ModuleBits


@frozen(kw_only=True, eq=False)
class _TaggedBits(UnaryRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        return [bits + " " * (int(input_id) % 2) for bits in super().sample(input_id, count)]


class UnaryBlankTells(RightUnary):
    """A trailing blank tells whether the item's number is odd."""

    release_class = _TaggedBits


def item_problem(items: int, epsilon: str) -> GeneratedProblem:
    return GeneratedProblem(toml=to_toml({"items": items, "privacy": {"epsilon": Decimal(epsilon)}}))


def items_apart(problem: Any) -> Iterator[tuple[str, str, float]]:
    yield from ((str(first), str(second), 1.0) for first, second in combinations(range(problem.items), 2))


ITEMS = Profile(
    problems=st.builds(item_problem, st.integers(2, 5), st.sampled_from(["1.0", "0.5", "3.0", "8.0"])),
    alike=items_apart,
    stricter=lambda problem: problem.with_key("privacy.epsilon", Decimal(problem.get("privacy.epsilon")) / 2),
    skip={"verify-catches": "any weights that keep epsilon will do"},
)

# --- permute-and-flip --------------------------------------------------------------------------------------


class FlipsAtTwice(RightFlips):
    """States what permute-and-flip at epsilon draws, and draws at 2 epsilon."""

    kit = "faults.choice:FAR_FLIPS"
    sharp = 2.0


THRICE = evolve(FAR_FLIPS, probabilities=lambda problem, method: flip_shares(problem, 3.0))


class FlipsAndStatesThrice(RightFlips):
    """Draws at 3 epsilon, and says so."""

    kit = "faults.authors:THRICE"
    sharp = 3.0


class FlipsSeeded(RightFlips):
    """Draws from the same seed at each run."""

    kit = "faults.choice:FAR_FLIPS"

    def seed(self, problem: Any) -> int:
        return 0

    def chosen(self, problem: Any, chance: Any) -> int:
        return super().chosen(problem, np.random.default_rng(self.seed(problem)))


class FlipsSeededByData(FlipsSeeded):
    """Draws from a seed that is made of the votes."""

    def seed(self, problem: Any) -> int:
        votes = np.asarray(problem.loaded)
        return int(votes.sum()) * 31 + int(votes.max())


def _leak(name: str, **fields: Callable[[Any], Any]) -> type[RightFlips]:
    def solve(self: Any, problem: Any, context: Any) -> Outcome[Any]:
        votes = np.asarray(problem.loaded)
        return evolve(
            RightFlips.solve(self, problem, context), **{field: make(votes) for field, make in fields.items()}
        )

    return type(name, (RightFlips,), {"kit": "faults.choice:FAR_FLIPS", "solve": solve, "__module__": __name__})


FlipsTellFirst = _leak("FlipsTellFirst", details=lambda votes: {"first": int(votes[0])})
FlipsTellMost = _leak("FlipsTellMost", solver=lambda votes: {"name": "flips", "iterations": int(votes.max())})


@frozen(kw_only=True)
class _Padded(Chosen):
    is_odd: bool = False

    def write(self, folder: Path) -> None:
        (folder / "chosen.txt").write_text(f"{self.name}\n" + "\n" * self.is_odd, "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Chosen:
        chosen = Chosen.read.__func__(Chosen, folder, problem)  # type: ignore[attr-defined]
        is_odd = (folder / "chosen.txt").read_text("utf-8").endswith("\n\n")
        return cls(name=chosen.name, number=chosen.number, is_odd=is_odd)


class FlipsTellParity(RightFlips):
    """A second line end tells whether the first place has an odd number of votes."""

    kit = "faults.choice:FAR_FLIPS"
    release_class: Any = _Padded

    def solve(self, problem: Any, context: Any) -> Outcome[Any]:
        outcome = super().solve(problem, context)
        is_odd = bool(np.asarray(problem.loaded)[0] % 2)
        chosen = outcome.release
        return evolve(outcome, release=_Padded(name=chosen.name, number=chosen.number, is_odd=is_odd))


# --- a matrix of metric DP ---------------------------------------------------------------------------------


class ClaimsTwice(RightMatrix):
    """Claims twice the epsilon that was asked for."""

    def privacy(self, problem: Any, method: str) -> Any:
        right = super().privacy(problem, method)
        return evolve(right, epsilon=2 * right.epsilon)


@frozen(kw_only=True, eq=False)
class _SeededRow(MatrixRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        row = self.weights[list(map(str, self.records)).index(input_id)]
        return [str(self.outputs[n]) for n in draw(row, count, source=make_source(3)).tolist()]


class MatrixSeeded(RightMatrix):
    """Draws from a fixed seed."""

    release_class: Any = _SeededRow

    def solve(self, problem: Any, context: Any) -> Outcome[Any]:
        outcome = super().solve(problem, context)
        names = ("weights", "records", "outputs", "pairs", "distances")
        release = self.release_class(**{name: getattr(outcome.release, name) for name in names})
        return evolve(outcome, release=release)


@frozen(kw_only=True, eq=False)
class _TaggedRow(MatrixRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        number = list(map(str, self.records)).index(input_id)
        return [report + " " * (number % 2) for report in super().sample(input_id, count)]


class MatrixBlankTells(MatrixSeeded):
    """A trailing blank tells whether the record's number is odd."""

    release_class = _TaggedRow
