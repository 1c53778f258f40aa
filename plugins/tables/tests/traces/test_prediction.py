"""The guarantee of traces by brute force: every sequence of reports of small graphs, the noise summed over."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.segments import stayed, summed
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import privopt
from privopt.errors import InputError
from privopt.numbers.sampling import seeded
from privopt_metric_dp.matrix.repair import round_to_weights
from privopt_metric_dp.traces import prediction as grids
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker
from privopt_metric_dp.traces.prediction import Prediction, Terms
from privopt_tables.kit.trace_law import Law, cost_of, segment_of

ROOM = 1e-9


@pytest.fixture(autouse=True, scope="module")
def coarse():
    """Return a coarse grid: what it adds to distances is measured, and the sums over noise are short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 8)
        yield


class Line:
    """What Prediction.of reads of a problem's data: records on a line, which are the outputs."""

    file, unit, region = "problem.toml", "km", None

    def __init__(self, places):
        self.places = np.asarray(places, dtype=np.float64)
        self.to_outputs = np.abs(self.places[:, None] - self.places[None])
        self.shape = self.to_outputs.shape
        self.records = type("Records", (), {"ids": [f"r{n}" for n in range(len(places))]})()
        i, j = np.triu_indices(len(places), 1)
        self.standing = np.column_stack([i, j]).astype(np.int64), self.to_outputs[i, j]


def exponential_weights(data, epsilon):
    z = np.exp(-float(epsilon) * data.to_outputs / 2)
    z /= z.sum(axis=1, keepdims=True)
    return round_to_weights(z)


def walker_of(places, terms):
    data = Line(places)
    prediction = Prediction.of(data, terms)
    assert not prediction.failures(data, terms)
    return data, Walker(weights=exponential_weights(data, terms.report), prediction=prediction, terms=terms)


def worst_share(data, walker, trace, other):
    """Greatest log ratio over the bound, over all sequences, both ways."""
    apart = data.to_outputs[trace, other]
    law = Law.of(walker)
    one, two = law.every(trace), law.every(other)
    assert math.fsum(one.values()) == pytest.approx(1.0, abs=1e-9)
    shares = [0.0]
    for seen, first in one.items():
        bound = float(cost_of(walker.terms, seen, apart))
        ratio = abs(math.log(first / two[seen])) if first > 0 and two[seen] > 0 else 0.0
        assert (first > 1e-300) == (two[seen] > 1e-300)
        assert ratio <= bound + ROOM, (trace, other, seen, ratio, bound)
        shares.append(ratio / bound if bound else 0.0)
    return max(shares)


EPSILONS = st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(4)])
TERMS = st.builds(
    Terms, report=EPSILONS, threshold=EPSILONS, test=EPSILONS, good_within=st.sampled_from([0, 1, 2, 5]).map(Fraction)
)
PLACES = st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.7, 2.0, 4.5]), min_size=2, max_size=3, unique=True)


@settings(max_examples=40)
@given(PLACES, TERMS, st.data())
def test_no_sequence_tells_two_traces_apart_better_than_its_segments_allow(places, terms, draw):
    data, walker = walker_of(places, terms)
    trace = st.lists(st.integers(0, len(places) - 1), min_size=4, max_size=4)
    worst_share(data, walker, draw.draw(trace), draw.draw(trace))


@given(
    st.floats(1e-3, 2.0),
    st.floats(1e-3, 2.0),
    st.lists(st.integers(-300, 900), max_size=3),
    st.none() | st.integers(-300, 900),
)
def test_segments_in_closed_form_are_sums_over_the_noise(threshold, test, kept, renewed):
    assert segment_of(threshold, test, kept, renewed) == pytest.approx(
        summed(threshold, test, kept, renewed), rel=1e-7, abs=1e-13
    )


def test_the_bound_is_reached():
    """Kept in spite of a far place, then renewed: the other trace is farther at the one and nearer at the other."""
    terms = Terms(report=Fraction(1, 10), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 256)
        data, walker = walker_of([0.0, 1.0, 2.0, 30.0], terms)
    seen = ((False, 3), (True, 3), (True, 3), (True, 3), (False, 3))
    one, two = [1, 1, 1, 1, 1], [1, 0, 0, 0, 2]
    apart = data.to_outputs[one, two]
    law = Law.of(walker)
    got = abs(math.log(law.probability(one, seen) / law.probability(two, seen)))
    spent = float(terms.threshold + 2 * terms.test)  # the fresh report's own part is the matrix's business
    fresh = math.log(int(walker.weights[1, 3]) / int(walker.weights[2, 3]))
    assert 0.99 * spent <= got - fresh <= spent + ROOM
    assert got <= float(cost_of(walker.terms, seen, apart))


def test_a_stay_costs_the_same_for_few_reports_and_for_many():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(2))
    walker = walker_of([0.0, 1.0, 3.0], terms)[1]
    for stay in (2, 20, 200):
        one, two = (stayed(Law.of(walker), place, 2, stay) for place in (0, 1))
        first = math.log(int(walker.weights[1, 2]) / int(walker.weights[0, 2]))
        assert math.log(two / one) <= first + float(terms.threshold) + ROOM


def test_near_pairs_alone_bound_traces_by_chains(tmp_path):
    """Three places round a corner, and two far off: chains are longer than distances, or there is none."""
    places = [("a", 0, 0), ("b", 2, 0), ("c", 2, 1.2), ("d", 50, 0), ("e", 51, 0)]
    (tmp_path / "points.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in places))
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[utility]\nkind = "distance"\n'
        "[privacy]\nepsilon = 1\nneighbours_within = 2\n[predictive]\ngood_within = 1\n"
    )
    walker = privopt.solve("predictive", tmp_path / "problem.toml").opened.release.walker
    chains = np.array([[0.0, 2.0, 3.2], [2.0, 0.0, 1.2], [3.2, 1.2, 0.0]])
    beyond = 0.0
    for one, two in (([0, 0, 0], [2, 2, 2]), ([0, 1, 0], [1, 2, 1]), ([2, 0, 1], [1, 2, 2])):
        law, other = map(Law.of(walker).every, (one, two))
        apart = chains[one, two]
        for seen in law:
            ratio = abs(math.log(law[seen] / other[seen])) if law[seen] > 0 and other[seen] > 0 else 0.0
            assert (law[seen] > 1e-280) == (other[seen] > 1e-280), seen
            assert ratio <= float(cost_of(walker.terms, seen, apart)) + ROOM
            alone = float(cost_of(walker.terms, seen, np.minimum(apart, math.hypot(2.0, 1.2))))
            beyond = max(beyond, ratio / alone)
    assert beyond > 1.01  # what distances alone would allow is passed


# --- draws ---------------------------------------------------------------------------------------------


def counted(walker, trace, count, source, charge=None):
    """How often each sequence of reports came."""
    subjects = np.tile(np.arange(count), len(trace))
    rows = np.repeat(np.array(trace, dtype=np.int64), count)
    found = walker.walk(rows, subjects, State(), charge=charge or Limit(None), source=source)
    outputs, kept = found.outputs.reshape(-1, count).T, found.kept.reshape(-1, count).T
    return Counter(tuple(zip(k, o, strict=True)) for k, o in zip(kept.tolist(), outputs.tolist(), strict=True))


@pytest.mark.parametrize("trace", [[0, 0, 0, 2], [2, 0, 1, 1]])
def test_draws_follow_the_law(trace):
    terms = Terms(report=Fraction(1), threshold=Fraction(1, 2), test=Fraction(2), good_within=Fraction(2))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    count = 40_000
    found, law = counted(walker, trace, count, seeded(5)), Law.of(walker).every(trace)
    assert set(found) <= set(law)
    expected = np.array([law[seen] * count for seen in law])
    seen = np.array([found[seen] for seen in law])
    usual = expected >= 5
    got, wanted = [np.append(each[usual], each[~usual].sum()) for each in (seen, expected)]
    assert chisquare(got, wanted * got.sum() / wanted.sum()).pvalue > 1e-4


def test_batches_and_other_subjects_change_nothing():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    rows = np.array([0, 1, 1, 0, 2, 2, 2, 0, 0, 0], dtype=np.int64)
    whole = walker.walk(rows, np.zeros(10, dtype=np.int64), State(), charge=Limit(None), source=seeded(3))
    state = State()
    parts = [
        walker.walk(rows[part], np.zeros(5, dtype=np.int64), state, charge=Limit(None), source=seeded(4))
        for part in (slice(0, 5), slice(5, 10))
    ]
    assert state.last[0] == parts[1].outputs[-1]
    assert (whole.outputs >= 0).all()
    assert not whole.kept[0]


def test_charges_follow_from_rows_and_earlier_reports_alone():
    """The same entropy, another place in the last row, rows without a position: nothing is charged otherwise."""
    terms = Terms(
        report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3), total=Fraction(13)
    )
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    for last in (0, 2, -1):
        limit = Limit(terms.total)
        rows = np.array([0, -1, 1, 2, 0, 2, last], dtype=np.int64)
        found = walker.walk(rows, np.zeros(7, dtype=np.int64), State(), charge=limit, source=seeded(1))
        renewed = int((~found.kept & (found.outputs >= 0)).sum())
        ended = renewed - 1 + (not (rows[-1] >= 0 and not found.kept[-1] and found.outputs[-1] >= 0))
        assert limit.spent[0] == terms.report + min(ended, 3) * terms.segment
        assert found.outputs[1] == -1
        assert not found.spent[1]


@settings(max_examples=40)
@given(st.lists(st.integers(-1, 2), min_size=1, max_size=30), st.integers(0, 60), st.integers(0, 9))
def test_no_subject_spends_more_than_the_total(rows, total, seed):
    terms = Terms(report=Fraction(2), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(1))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    limit = Limit(Fraction(total))
    rows = np.array(rows, dtype=np.int64)
    found = walker.walk(rows, np.zeros(len(rows), dtype=np.int64), State(), charge=limit, source=seeded(seed))
    fresh = int((~found.kept & (found.outputs >= 0)).sum())
    assert limit.spent.get(0, 0) <= total
    assert terms.report * (fresh > 0) + terms.segment * max(0, fresh - 1) <= limit.spent.get(0, 0)
    assert ((found.outputs < 0) == ((rows < 0) | found.spent)).all()
    after = np.flatnonzero(found.spent)
    assert not after.size or (found.outputs[after[0] :] < 0).all()


# --- the numbers ---------------------------------------------------------------------------------------


def test_rates_that_hide_too_little_are_named():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    data, walker = walker_of([0.0, 1.0, 3.5], terms)
    numbers = walker.prediction
    assert evolve(numbers, threshold=numbers.threshold * Fraction(1001, 1000)).failures(data, terms)
    assert evolve(numbers, test=numbers.test * Fraction(1001, 1000)).failures(data, terms)
    steps = numbers.steps.copy()
    steps[0, 1] += 10
    assert evolve(numbers, steps=steps).failures(data, terms)
    assert evolve(numbers, steps=steps[:2]).failures(data, terms)


def test_the_grid_costs_less_than_a_thousandth():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 1024)
        data = Line([0.0, 0.137, 1.0, 3.5])
        numbers = Prediction.of(data, terms)
    step = 3.5 / numbers.steps[0, 3]
    assert 0.999 <= float(numbers.threshold) / step <= 1.0


@pytest.mark.parametrize("epsilon", ["0.05", "1", "5"])
def test_twins_a_micrometre_apart_get_a_coarser_grid(epsilon):
    share = Fraction(epsilon)
    terms = Terms(report=2 * share, threshold=share, test=share, good_within=Fraction(1, 10**9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 1024)
        for places in ([0.0, 1e-9], [0.0, 1e-9, 1.0]):
            data = Line(places)
            numbers = Prediction.of(data, terms)
            assert numbers.failures(data, terms) == []
            per_km = numbers.steps[0, 1] / 1e-9 * float(numbers.test)
            assert 0.7 * share <= per_km <= share


def test_distances_too_uneven_for_whole_numbers_are_refused():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    with pytest.raises(InputError, match="records 1e-30 km apart"):
        Prediction.of(Line([0.0, 1e-30, 1.0]), terms)


def test_numbers_survive_their_file(tmp_path):
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    walker.prediction.write(tmp_path)
    again = Prediction.read(tmp_path)
    assert (again.steps == walker.prediction.steps).all()
    assert (again.level, again.threshold, again.test) == (
        walker.prediction.level,
        walker.prediction.threshold,
        walker.prediction.test,
    )
    np.savez(tmp_path / "prediction.npz", steps=again.steps.astype(float), level=[3], rates=[[1, 1], [2, 1]])
    with pytest.raises(InputError, match="steps"):
        Prediction.read(tmp_path)


def test_numbers_that_the_problem_does_not_give_are_named():
    """As private, and yet another report than the problem asks for."""
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    data, walker = walker_of([0.0, 1.0, 3.5], terms)
    numbers = walker.prediction
    for changed in (
        {"level": numbers.level * 2},
        {"level": numbers.level + 1},
        {"threshold": numbers.threshold / 2},
        {"test": numbers.test * Fraction(999, 1000)},
        {"steps": np.zeros_like(numbers.steps)},
    ):
        told = evolve(numbers, **changed).failures(data, terms)
        assert told == [f"prediction.npz: {next(iter(changed))}: not what the problem gives"]


def test_the_last_bit_of_a_distance_is_no_forgery():
    """Another machine's least distance may lie on the other side of a power of two."""
    terms = Terms(report=Fraction(1), threshold=Fraction(1, 4), test=Fraction(1, 4), good_within=Fraction(3))
    for least in (1.0, np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)):
        made = Prediction.of(Line([0.0, least, 3.5]), terms)
        for other in (1.0, np.nextafter(1.0, 0.0)):
            assert not any("not what" in line for line in made.failures(Line([0.0, other, 3.5]), terms))


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
@pytest.mark.parametrize(("epsilon", "share"), [("0.5", 1), ("1.75", 1), ("2", Fraction(3, 4)), ("8", Fraction(1, 2))])
def test_what_tests_get_follows_from_epsilon_and_the_map(tmp_path, epsilon, share):
    """Three records in a row, 4.5 km apart: one output for all is 3 km off, good_within at most 3 where it can."""
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,4.5,0\nc,9,0\n")
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[utility]\nkind = "distance"\n'
        f"[privacy]\nepsilon = {epsilon}\n"
    )
    terms = privopt.solve("predictive", tmp_path / "problem.toml").opened.release.walker.terms
    assert (terms.threshold, terms.test) == (Fraction(epsilon) * share,) * 2
    assert terms.good_within == 2 / terms.report + 3 / terms.test
    assert share == 1 or terms.good_within <= 3
