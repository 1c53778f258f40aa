"""The interior point on other array libraries and devices: the same answer."""

import sys

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt.metric.optimal import solve
from privopt.metric.optimal.arrays import DEVICE, torch_arrays
from privopt.metric.optimal.interior_point import solve_interior_point


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("pairs", ["8nb", "all"])
def test_torch_finds_what_numpy_finds(grid_instance, monkeypatch, device, pairs):
    torch = pytest.importorskip("torch", reason="the extra gpu is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    instance = grid_instance(5, pairs, 0.4)
    plain = solve_interior_point(instance, gap=1e-8)
    monkeypatch.setenv(DEVICE, device)
    other = solve(instance, method="interior-point", gap=1e-8)
    assert other.objective == pytest.approx(plain.objective, rel=2e-8)
    assert other.lower_bound == pytest.approx(plain.lower_bound, rel=2e-8)
    assert np.abs(other.z.sum(axis=1) - 1).max() < 1e-9


def test_a_device_that_is_not_there_is_named(monkeypatch, grid_instance):
    monkeypatch.setenv(DEVICE, "no-such-device")
    with pytest.raises(UsageError, match="no-such-device"):
        solve(grid_instance(3, "8nb", 0.4), method="interior-point")


def test_torch_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"privopt\[gpu\]"):
        torch_arrays("cuda")
