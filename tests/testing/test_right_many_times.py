"""Right mechanisms of each guarantee kind pass again and again: no check blames by chance."""

import pytest
from test_planted_faults import ODD, RIGHT

from privopt.testing import run_checks, subject
from privopt.testing.efforts import EFFORTS


def blamed(right, kind, how, seed):
    tried = subject(right, guarantee=kind)
    results = run_checks(tried, how=EFFORTS[how], seed=seed)
    tried.close()
    return [result for result in results if result.status == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize(("right", "kind"), RIGHT + ODD)
def test_twenty_runs_of_ci(right, kind, seed):
    assert blamed(right, kind, "ci", seed) == []


@pytest.mark.slow
@pytest.mark.parametrize(("right", "kind"), RIGHT)
def test_one_run_of_nightly(right, kind):
    assert blamed(right, kind, "nightly", 0) == []
