"""A toy mechanism of the core's own: noisy counts of a table, so that the core is tested without any plugin."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from attrs import evolve, frozen

from privopt.declare import File, key, positive
from privopt.declare.columns import Column, read_columns, write_columns
from privopt.declare.tables import Column as TableColumn
from privopt.declare.tables import read_table
from privopt.interfaces import Mechanism, Outcome, Release, UtilityLoss
from privopt.interfaces.additive import AdditiveNoise
from privopt.numbers.noise import discrete_laplace, stated_scale
from privopt.registry import Registered, Registry, registry, using
from privopt.registry.missing import CORE
from privopt.specs import MechanismSpec, MethodSpec

NAME = "toy-counts"
COUNTS = "counts.csv"


@frozen(kw_only=True)
class ToyProblem:
    """The keys of its problem files."""

    people: File = key(help="CSV: place,people; people are secret", secret=True)
    epsilon: Fraction = key(help="privacy budget", unit="per person", check=positive)


@frozen(kw_only=True)
class ToyRelease(Release):
    """Noisy counts by place."""

    places: tuple[str, ...]
    noisy: tuple[int, ...]
    scales: tuple[Fraction, ...]

    def write(self, folder: Path) -> None:
        """Write the counts and the scale of their noise."""
        write_columns(folder / COUNTS, {"place": self.places, "count": self.noisy})
        (folder / "scale.txt").write_text(f"{self.scales[0]}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: ToyProblem) -> "ToyRelease":
        """Read them back."""
        table = read_columns(folder / COUNTS, [Column(name="place", kind="text"), Column(name="count", whole=True)])
        scale = stated_scale((folder / "scale.txt").read_text("utf-8").strip())
        counts = tuple(int(count) for count in table["count"])
        return cls(places=tuple(table["place"]), noisy=counts, scales=(scale,))


class ExpectedError(UtilityLoss):
    """The expected error of a count, about the scale of its noise."""

    unit = "people"

    def evaluate(self, release: ToyRelease) -> float:
        """Return the scale."""
        return float(release.scales[0])


class ToyCounts(Mechanism[ToyProblem, ToyRelease]):
    """Adds discrete Laplace noise to each count."""

    problem_class, release_class = ToyProblem, ToyRelease

    def privacy(self, problem: ToyProblem, method: str) -> AdditiveNoise:
        """Return pure DP of one person more or less."""
        statement = "One person more or less changes the odds of any counts by at most exp(epsilon)."
        return AdditiveNoise(epsilon=problem.epsilon, unit="per person", scope="one person", statement=statement)

    def utility(self, problem: ToyProblem, method: str) -> ExpectedError:
        """Return the expected error."""
        return ExpectedError()

    def solve(self, problem: ToyProblem, context) -> Outcome[ToyRelease]:
        """Draw the noise."""
        columns = [TableColumn(name="place", kind="id"), TableColumn(name="people", kind="count", least=0)]
        table = read_table(problem.people, columns)
        order = table["place"].argsort()  # the order of a secret file is a secret
        noisy, record = discrete_laplace(table["people"][order], problem.epsilon, seed=context.seed)
        places, counts = tuple(map(str, table["place"][order])), tuple(map(int, noisy))
        return Outcome(release=ToyRelease(places=places, noisy=counts, scales=(record.scale,)), seeded=record.seeded)


def core_registry() -> Registry:
    """Return a registry of what the core itself registers, and the toy."""
    method = MethodSpec(name="laplace", summary="discrete Laplace noise")
    target = f"{__name__}:ToyCounts"
    spec = MechanismSpec(name=NAME, target=target, guarantee="pure-dp", summary="noisy counts", methods=[method])
    entries = {key: entry for key, entry in registry().entries.items() if entry.plugin == CORE}
    core = evolve(registry(), entries=entries, observers=(), handle_hook=None)
    return core.replace(Registered(spec=spec, plugin=CORE, version="0"))


@contextmanager
def core_alone() -> Iterator[Registry]:
    """Open a block in which the core and its toy alone are registered."""
    core = core_registry()
    with using(core):
        yield core


def write_counts(folder: Path, *, epsilon: object = 1, rows: str = "north,12\nsouth,7\n") -> Path:
    """Write a problem of the toy; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "people.csv").write_text(f"place,people\n{rows}", "utf-8")
    (folder / "counts.toml").write_text(f'people = "people.csv"\nepsilon = {epsilon}\n', "utf-8")
    return folder / "counts.toml"
