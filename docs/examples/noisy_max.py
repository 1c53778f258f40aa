"""Report noisy max (Dwork and Roth 2014, section 3.3): the dish with the highest noisy count of votes."""

from fractions import Fraction

from attrs import frozen
from hypothesis import strategies as st

from privopt.declare import File, key, positive
from privopt.declare.tables import Column, read_table
from privopt.interfaces import Mechanism, Outcome, Release, UtilityLoss
from privopt.interfaces.additive import AdditiveNoise
from privopt.numbers.noise import discrete_laplace, stated_scale
from privopt.specs import MechanismSpec, MethodSpec, hookimpl
from privopt.testing import GeneratedProblem, Profile, csv_bytes


@hookimpl
def privopt_mechanisms():
    name, text, method = "favourite-dish", "the favourite dish", MethodSpec(name="laplace", summary="discrete noise")
    return [MechanismSpec(name=name, target="noisy_max:NoisyMax", guarantee="pure-dp", summary=text, methods=[method])]


@frozen(kw_only=True)
class Votes:
    votes: File = key(help="CSV: dish,votes; dishes 0, 1, ... are public, votes secret", secret=True)
    epsilon: Fraction = key(help="privacy budget", unit="per vote", check=positive)


@frozen(kw_only=True)
class Winner(Release):
    dish: str
    scales: tuple[Fraction]

    def write(self, folder):
        (folder / "winner.txt").write_text(f"{self.dish} {self.scales[0]}\n", "utf-8")

    @classmethod
    def read(cls, folder, problem):
        dish, scale = (folder / "winner.txt").read_text("utf-8").split()
        return cls(dish=dish, scales=(stated_scale(scale),))


class OneDish(UtilityLoss):
    unit = "dishes"

    def evaluate(self, release):
        return 1.0


class NoisyMax(Mechanism):
    problem_class, release_class, kit = Votes, Winner, "noisy_max:PROFILE"

    def privacy(self, problem, method):
        words = "One vote more or less makes no dish more than exp(epsilon) times as likely to win (Claim 3.9)."
        return AdditiveNoise(epsilon=problem.epsilon, unit="per vote", scope="one vote", statement=words)

    def utility(self, problem, method):
        return OneDish()

    def solve(self, problem, context):
        table = read_table(problem.votes, [Column(name="dish", kind="id"), Column(name="votes", kind="count", least=0)])
        order = table["dish"].argsort()  # the order of a secret file is a secret
        noisy, record = discrete_laplace(table["votes"][order], problem.epsilon, seed=context.seed)
        winner = Winner(dish=str(table["dish"][order][noisy.argmax()]), scales=(record.scale,))
        return Outcome(release=winner, seeded=record.seeded)


def meal(votes, epsilon):
    files = {"v.csv": csv_bytes(["dish", "votes"], list(enumerate(votes)))}
    return GeneratedProblem(toml=f'votes = "v.csv"\nepsilon = {epsilon}\n', files=files, facts={"votes": votes})


def more(problem):
    votes = problem.facts["votes"]
    return (meal([v + (m == n) for m, v in enumerate(votes)], problem.get("epsilon")) for n in range(len(votes)))


meals = st.builds(meal, st.lists(st.integers(0, 4), min_size=2, max_size=3), st.sampled_from([1, 2]))
PROFILE = Profile(problems=meals, neighbours=more, observed=lambda won: int(won.dish))
