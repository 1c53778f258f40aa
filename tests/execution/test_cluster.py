from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt.execution import from_url

pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")

CLUSTER = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=int(sys.argv[1]), threads_per_worker=1, processes=True, dashboard_address=None)
    print(cluster.scheduler_address.removeprefix("tcp://"), flush=True)
    sys.stdin.read()
    cluster.close()
"""


@pytest.fixture
def address(request, tmp_path):
    """Return where a cluster is, of as many workers as the test's parameter says."""
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    process = subprocess.Popen(
        [sys.executable, str(script), str(request.param)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=3000)


@pytest.mark.slow
@pytest.mark.parametrize("address", [2], indirect=True)
def test_cluster_keeps_keys_and_survives_a_death(address, tmp_path):
    with from_url(f"dask://{address}") as executor:
        assert executor.jobs == 2
        pids = [[executor.submit(key, os.getpid).result() for _ in range(2)] for key in "abc"]
        assert all(len(set(row)) == 1 for row in pids)
        assert len({row[0] for row in pids}) == 2
        reference = executor.hold(np.arange(1000.0))
        assert executor.submit("a", np.dot, reference, reference).result() == np.dot(
            np.arange(1000.0), np.arange(1000.0)
        )
        assert list(executor.map(pow, range(5), [3] * 5)) == [n**3 for n in range(5)]
        with pytest.raises(TypeError):
            executor.submit("a", abs, "x").result()
        marker = tmp_path / "died"
        code = f"import os; p = {str(marker)!r}; os.path.exists(p) or (open(p, 'w').close(), os.kill(os.getpid(), 9))"
        assert executor.submit("a", exec, code, {}).result(timeout=3000) is None
        assert executor.submit("a", np.sum, reference).result(timeout=3000) == 499500


@pytest.mark.parametrize("address", [1], indirect=True)
def test_task_with_lost_data_is_sent_again(address, tmp_path):
    """The cluster cancels it ("lost dependencies"), which is no answer."""
    marker = tmp_path / "died"
    code = (
        f"import os, time; p = {str(marker)!r}\n"
        "if not os.path.exists(p):\n    open(p, 'w').close(); time.sleep(0.3); os.kill(os.getpid(), 9)\n"
        "assert held == 41"
    )
    with from_url(f"dask://{address}") as executor:
        reference = executor.hold({"held": 41})
        assert executor.submit("a", len, reference).result(timeout=3000) == 1
        assert executor.submit("a", exec, code, reference).result(timeout=3000) is None
        assert marker.exists()
        assert executor.submit("a", len, reference).result(timeout=3000) >= 1


def test_unreachable_cluster(monkeypatch):
    monkeypatch.setattr("privopt.execution.cluster._PATIENCE_SECONDS", 0.2)
    with pytest.raises(UsageError, match="no Dask scheduler"):
        from_url("dask://127.0.0.1:9")
