"""Memory that is freed goes back to the system, and work that was given up does not keep its arrays."""

import ctypes
import weakref

import numpy as np
import pytest

from privopt.execution.clock import Clock, DaemonCall, OutOfTime
from privopt.execution.resources import resident, return_freed_memory

HAS_TRIM = hasattr(ctypes.CDLL(None), "malloc_trim")


class _Holder:
    """An object whose end a test can observe."""


@pytest.mark.skipif(not HAS_TRIM, reason="needs the GNU C library")
def test_freed_memory_is_returned_to_the_system():
    before = resident()
    # Arrays below the threshold for memory of their own stay in the C library's heap. The last one keeps it from
    # shrinking by itself.
    arrays = [np.ones(8_000) for _ in range(5_000)]
    last = arrays.pop()
    grown = resident() - before
    del arrays
    return_freed_memory()
    assert grown > 250_000_000
    assert last[0] == 1.0
    assert resident() - before < 0.2 * grown


def test_work_out_of_time_keeps_none_of_its_variables():
    references, scope = [], Clock(None)

    def work():
        holder = _Holder()
        references.append(weakref.ref(holder))
        raise OutOfTime(scope)

    call = DaemonCall(work, within=scope)
    assert call.wait(60.0)
    call.thread.join(60.0)
    assert references[0]() is None
    with pytest.raises(OutOfTime):
        call.result()
