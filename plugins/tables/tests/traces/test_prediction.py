"""The guarantee of traces by brute force: every sequence of reports of small graphs, the noise summed over."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.segments import stay_probability, sum_segment
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import privopt
from privopt.errors import InputError
from privopt.numbers.sampling import make_source
from privopt_metric_dp.matrix.repair import round_to_weights
from privopt_metric_dp.traces import prediction as grids
from privopt_metric_dp.traces.draw_trace import Limit, State, Walker
from privopt_metric_dp.traces.prediction import Prediction, Terms
from privopt_tables.kit.trace_law import Law, max_log_ratio, segment_probability

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


def worst_ratio(data, walker, trace, other_trace):
    """Greatest log ratio over the bound, over all sequences, both ways."""
    distances = data.to_outputs[trace, other_trace]
    law = Law.of(walker)
    sequence_law, other_sequence_law = law.sequence_probabilities(trace), law.sequence_probabilities(other_trace)
    assert math.fsum(sequence_law.values()) == pytest.approx(1.0, abs=1e-9)
    shares = [0.0]
    for sequence, first in sequence_law.items():
        bound = float(max_log_ratio(walker.terms, sequence, distances))
        ratio = (
            abs(math.log(first / other_sequence_law[sequence]))
            if first > 0 and other_sequence_law[sequence] > 0
            else 0.0
        )
        assert (first > 1e-300) == (other_sequence_law[sequence] > 1e-300)
        assert ratio <= bound + ROOM, (trace, other_trace, sequence, ratio, bound)
        shares.append(ratio / bound if bound else 0.0)
    return max(shares)


EPSILONS = st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(4)])
TERMS = st.builds(
    Terms, report=EPSILONS, threshold=EPSILONS, test=EPSILONS, good_within=st.sampled_from([0, 1, 2, 5]).map(Fraction)
)
PLACES = st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.7, 2.0, 4.5]), min_size=2, max_size=3, unique=True)


@settings(max_examples=40)
@given(PLACES, TERMS, st.data())
def test_sequences_reveal_at_most_their_segments(places, terms, draw):
    data, walker = walker_of(places, terms)
    trace = st.lists(st.integers(0, len(places) - 1), min_size=4, max_size=4)
    worst_ratio(data, walker, draw.draw(trace), draw.draw(trace))


@given(
    st.floats(1e-3, 2.0),
    st.floats(1e-3, 2.0),
    st.lists(st.integers(-300, 900), max_size=3),
    st.none() | st.integers(-300, 900),
)
def test_closed_form_of_segments_sums_the_noise(threshold, test, kept, renewed):
    assert segment_probability(threshold, test, kept, renewed) == pytest.approx(
        sum_segment(threshold, test, kept, renewed), rel=1e-7, abs=1e-13
    )


def test_bound_is_reached():
    """Kept in spite of a far place, then renewed: the other trace is farther at the one and nearer at the other."""
    terms = Terms(report=Fraction(1, 10), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 256)
        data, walker = walker_of([0.0, 1.0, 2.0, 30.0], terms)
    sequence = ((False, 3), (True, 3), (True, 3), (True, 3), (False, 3))
    trace, other_trace = [1, 1, 1, 1, 1], [1, 0, 0, 0, 2]
    distances = data.to_outputs[trace, other_trace]
    law = Law.of(walker)
    log_ratio = abs(math.log(law.probability(trace, sequence) / law.probability(other_trace, sequence)))
    spent_epsilon = float(terms.threshold + 2 * terms.test)  # the fresh report's own part is the matrix's business
    fresh_ratio = math.log(int(walker.weights[1, 3]) / int(walker.weights[2, 3]))
    assert 0.99 * spent_epsilon <= log_ratio - fresh_ratio <= spent_epsilon + ROOM
    assert log_ratio <= float(max_log_ratio(walker.terms, sequence, distances))


def test_stay_costs_the_same_for_any_length():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(2))
    walker = walker_of([0.0, 1.0, 3.0], terms)[1]
    for length in (2, 20, 200):
        first_chance, second_chance = (stay_probability(Law.of(walker), position, 2, length) for position in (0, 1))
        first = math.log(int(walker.weights[1, 2]) / int(walker.weights[0, 2]))
        assert math.log(second_chance / first_chance) <= first + float(terms.threshold) + ROOM


@pytest.mark.filterwarnings("ignore:the best guess at the")
def test_near_pairs_bound_traces_by_chains(tmp_path):
    """Three places round a corner, and two far off: chains are longer than distances, or there is none."""
    places = [("a", 0, 0), ("b", 2, 0), ("c", 2, 1.2), ("d", 50, 0), ("e", 51, 0)]
    (tmp_path / "points.csv").write_text("id,x,y\n" + "".join(f"{i},{x},{y}\n" for i, x, y in places))
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[utility]\nkind = "distance"\n'
        "[privacy]\nepsilon = 1\nneighbours_within = 2\n[predictive]\ngood_within = 1\n"
    )
    walker = privopt.solve("predictive", tmp_path / "problem.toml").opened.release.walker
    chains = np.array([[0.0, 2.0, 3.2], [2.0, 0.0, 1.2], [3.2, 1.2, 0.0]])
    max_excess = 0.0
    for trace, other_trace in (([0, 0, 0], [2, 2, 2]), ([0, 1, 0], [1, 2, 1]), ([2, 0, 1], [1, 2, 2])):
        law, other_law = map(Law.of(walker).sequence_probabilities, (trace, other_trace))
        chain_distances = chains[trace, other_trace]
        for sequence in law:
            ratio = (
                abs(math.log(law[sequence] / other_law[sequence]))
                if law[sequence] > 0 and other_law[sequence] > 0
                else 0.0
            )
            assert (law[sequence] > 1e-280) == (other_law[sequence] > 1e-280), sequence
            assert ratio <= float(max_log_ratio(walker.terms, sequence, chain_distances)) + ROOM
            direct_bound = float(
                max_log_ratio(walker.terms, sequence, np.minimum(chain_distances, math.hypot(2.0, 1.2)))
            )
            max_excess = max(max_excess, ratio / direct_bound)
    assert max_excess > 1.01  # what distances alone would allow is passed


# --- draws ---------------------------------------------------------------------------------------------


def count_sequences(walker, trace, count, source, charge=None):
    """How often each sequence of reports came."""
    subjects = np.tile(np.arange(count), len(trace))
    rows = np.repeat(np.array(trace, dtype=np.int64), count)
    walked = walker.walk(rows, subjects, State(), charge=charge or Limit(None), source=source)
    outputs, is_kept = walked.outputs.reshape(-1, count).T, walked.kept.reshape(-1, count).T
    return Counter(tuple(zip(k, o, strict=True)) for k, o in zip(is_kept.tolist(), outputs.tolist(), strict=True))


@pytest.mark.parametrize("trace", [[0, 0, 0, 2], [2, 0, 1, 1]])
def test_draws_follow_the_law(trace):
    terms = Terms(report=Fraction(1), threshold=Fraction(1, 2), test=Fraction(2), good_within=Fraction(2))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    count = 40_000
    sequence_counts, law = (
        count_sequences(walker, trace, count, make_source(5)),
        Law.of(walker).sequence_probabilities(trace),
    )
    assert set(sequence_counts) <= set(law)
    expected = np.array([law[seen] * count for seen in law])
    seen = np.array([sequence_counts[seen] for seen in law])
    usual = expected >= 5
    observed_counts, expected_counts = [np.append(counts[usual], counts[~usual].sum()) for counts in (seen, expected)]
    assert chisquare(observed_counts, expected_counts * observed_counts.sum() / expected_counts.sum()).pvalue > 1e-4


def test_batches_and_subjects_are_independent():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    rows = np.array([0, 1, 1, 0, 2, 2, 2, 0, 0, 0], dtype=np.int64)
    all_at_once = walker.walk(rows, np.zeros(10, dtype=np.int64), State(), charge=Limit(None), source=make_source(3))
    state = State()
    parts = [
        walker.walk(rows[part], np.zeros(5, dtype=np.int64), state, charge=Limit(None), source=make_source(4))
        for part in (slice(0, 5), slice(5, 10))
    ]
    assert state.last[0] == parts[1].outputs[-1]
    assert (all_at_once.outputs >= 0).all()
    assert not all_at_once.kept[0]


def test_charges_follow_from_rows_and_reports():
    """The same entropy, another place in the last row, rows without a position: nothing is charged otherwise."""
    terms = Terms(
        report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3), total=Fraction(13)
    )
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    for last in (0, 2, -1):
        limit = Limit(terms.total)
        rows = np.array([0, -1, 1, 2, 0, 2, last], dtype=np.int64)
        walked = walker.walk(rows, np.zeros(7, dtype=np.int64), State(), charge=limit, source=make_source(1))
        renewed = int((~walked.kept & (walked.outputs >= 0)).sum())
        ended_segments = renewed - 1 + (not (rows[-1] >= 0 and not walked.kept[-1] and walked.outputs[-1] >= 0))
        assert limit.spent[0] == terms.report + min(ended_segments, 3) * terms.segment
        assert walked.outputs[1] == -1
        assert not walked.spent[1]


@settings(max_examples=40)
@given(st.lists(st.integers(-1, 2), min_size=1, max_size=30), st.integers(0, 60), st.integers(0, 9))
def test_no_subject_exceeds_the_total(rows, total, seed):
    terms = Terms(report=Fraction(2), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(1))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    limit = Limit(Fraction(total))
    rows = np.array(rows, dtype=np.int64)
    walked = walker.walk(rows, np.zeros(len(rows), dtype=np.int64), State(), charge=limit, source=make_source(seed))
    fresh_count = int((~walked.kept & (walked.outputs >= 0)).sum())
    assert limit.spent.get(0, 0) <= total
    assert terms.report * (fresh_count > 0) + terms.segment * max(0, fresh_count - 1) <= limit.spent.get(0, 0)
    assert ((walked.outputs < 0) == ((rows < 0) | walked.spent)).all()
    spent_rows = np.flatnonzero(walked.spent)
    assert not spent_rows.size or (walked.outputs[spent_rows[0] :] < 0).all()


# --- the numbers ---------------------------------------------------------------------------------------


def test_names_rates_that_hide_too_little():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    data, walker = walker_of([0.0, 1.0, 3.5], terms)
    numbers = walker.prediction
    assert evolve(numbers, threshold=numbers.threshold * Fraction(1001, 1000)).failures(data, terms)
    assert evolve(numbers, test=numbers.test * Fraction(1001, 1000)).failures(data, terms)
    steps = numbers.steps.copy()
    steps[0, 1] += 10
    assert evolve(numbers, steps=steps).failures(data, terms)
    assert evolve(numbers, steps=steps[:2]).failures(data, terms)


def test_grid_costs_less_than_a_thousandth():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 1024)
        data = Line([0.0, 0.137, 1.0, 3.5])
        numbers = Prediction.of(data, terms)
    step = 3.5 / numbers.steps[0, 3]
    assert 0.999 <= float(numbers.threshold) / step <= 1.0


@pytest.mark.parametrize("epsilon", ["0.05", "1", "5"])
def test_near_twins_get_a_coarser_grid(epsilon):
    rate = Fraction(epsilon)
    terms = Terms(report=2 * rate, threshold=rate, test=rate, good_within=Fraction(1, 10**9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "STEPS_PER_DISTANCE", 1024)
        for places in ([0.0, 1e-9], [0.0, 1e-9, 1.0]):
            data = Line(places)
            numbers = Prediction.of(data, terms)
            assert numbers.failures(data, terms) == []
            per_km = numbers.steps[0, 1] / 1e-9 * float(numbers.test)
            assert 0.7 * rate <= per_km <= rate


def test_refuses_too_uneven_distances():
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    with pytest.raises(InputError, match="1e-30 km"):
        Prediction.of(Line([0.0, 1e-30, 1.0]), terms)


def test_numbers_round_trip_as_a_file(tmp_path):
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    _, walker = walker_of([0.0, 1.0, 3.5], terms)
    walker.prediction.write(tmp_path)
    read_back = Prediction.read(tmp_path)
    assert (read_back.steps == walker.prediction.steps).all()
    assert (read_back.level, read_back.threshold, read_back.test) == (
        walker.prediction.level,
        walker.prediction.threshold,
        walker.prediction.test,
    )
    np.savez(tmp_path / "prediction.npz", steps=read_back.steps.astype(float), level=[3], rates=[[1, 1], [2, 1]])
    with pytest.raises(InputError, match="steps"):
        Prediction.read(tmp_path)


def test_names_numbers_the_problem_does_not_give():
    """As private, and yet another report than the problem asks for."""
    terms = Terms(report=Fraction(1), threshold=Fraction(1), test=Fraction(1), good_within=Fraction(3))
    data, walker = walker_of([0.0, 1.0, 3.5], terms)
    numbers = walker.prediction
    for changed_numbers in (
        {"level": numbers.level * 2},
        {"level": numbers.level + 1},
        {"threshold": numbers.threshold / 2},
        {"test": numbers.test * Fraction(999, 1000)},
        {"steps": np.zeros_like(numbers.steps)},
    ):
        failures = evolve(numbers, **changed_numbers).failures(data, terms)
        assert [line.rpartition(":")[0] for line in failures] == [f"prediction.npz: {next(iter(changed_numbers))}"]


def test_last_bit_of_a_distance_is_no_forgery():
    """Another machine's least distance may lie on the other side of a power of two."""
    terms = Terms(report=Fraction(1), threshold=Fraction(1, 4), test=Fraction(1, 4), good_within=Fraction(3))
    for min_distance in (1.0, np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)):
        prediction = Prediction.of(Line([0.0, min_distance, 3.5]), terms)
        for other_distance in (1.0, np.nextafter(1.0, 0.0)):
            assert not any("not what" in line for line in prediction.failures(Line([0.0, other_distance, 3.5]), terms))


@pytest.mark.filterwarnings("ignore::privopt.PrivoptWarning")
@pytest.mark.parametrize(
    ("epsilon", "test_share"), [("0.5", 1), ("1.75", 1), ("2", Fraction(3, 4)), ("8", Fraction(1, 2))]
)
def test_tests_follow_from_epsilon_and_map(tmp_path, epsilon, test_share):
    """Three records in a row, 4.5 km apart: one output for all is 3 km off, good_within at most 3 where it can."""
    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,4.5,0\nc,9,0\n")
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[utility]\nkind = "distance"\n'
        f"[privacy]\nepsilon = {epsilon}\n"
    )
    terms = privopt.solve("predictive", tmp_path / "problem.toml").opened.release.walker.terms
    assert (terms.threshold, terms.test) == (Fraction(epsilon) * test_share,) * 2
    assert terms.good_within == 2 / terms.report + 3 / terms.test
    assert test_share == 1 or terms.good_within <= 3
