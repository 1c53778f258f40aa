"""The job of docs/used-for/flows.py: flows by reports, and by a trusted operator, on the same trips."""

import importlib.util
from pathlib import Path

import pytest

from privopt.api.released import PrivoptWarning

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "used-for" / "flows.py"


def load_script():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("flows_of_a_city", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings(f"ignore::{PrivoptWarning.__module__}.{PrivoptWarning.__name__}")
def test_trusted_operator_errs_much_less_than_reports(small, tmp_path):
    """Neither is drawn from a seed: both errors are far from their limits."""
    figures = load_script().measure_errors(tmp_path, small=small)
    assert figures["local_error"] < figures["raw_error"] / 1.3
    assert figures["central_error"] < figures["local_error"] / 4
    assert figures["local_held"] > 0.9
    # Each of 16 intervals holds in 95 of 100 cases by itself, so that two or three may miss.
    assert figures["central_held"] >= 0.75
