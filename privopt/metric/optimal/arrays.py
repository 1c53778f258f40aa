"""The few array operations that the interior point needs, on NumPy or on torch.

The solver's arrays stay whatever the adapter made them; arithmetic operators, slices and ``@`` work
alike on both. torch is an option: it is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.errors import UsageError

__all__ = ["DEVICE", "Arrays", "NumpyArrays", "chosen_arrays", "numpy_arrays", "torch_arrays"]

DEVICE = "PRIVOPT_DEVICE"
"""Environment variable: where the interior point computes."""


class Arrays(Protocol):
    """What the interior point asks of an array library."""

    def put(self, array: NDArray[Any]) -> Any:
        """Floats of the library from a NumPy array."""

    def get(self, array: Any) -> NDArray[Any]:
        """NumPy array from an array of the library."""

    def sparse(self, matrix: Any) -> Any:
        """Sparse matrix of the library from SciPy's CSR; knows ``@`` with a matrix of two dimensions."""

    def zeros(self, *shape: int) -> Any:
        """Floats of zeros."""

    def contiguous(self, array: Any) -> Any:
        """The same array, its last axis next in memory."""

    def cholesky(self, array: Any) -> Any:
        """Lower Cholesky factors of a batch; raises `numpy.linalg.LinAlgError`."""

    def lower_inverse(self, array: Any) -> Any:
        """Inverses of a batch of lower triangular matrices."""

    def clip(self, array: Any, low: float, high: float) -> Any:
        """Elementwise clip."""

    def stack_columns(self, left: Any, right: Any) -> Any:
        """Two batches of matrices side by side."""

    def longest(self, value: Any, step: Any, extra: Any, weights: tuple[float, ...]) -> NDArray[np.float64]:
        """For each weight the largest t that keeps ``value + t (step + weight extra)`` at 0 or more."""


FAST = {"nnan", "nsz", "reassoc", "arcp", "contract"}


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)  # type: ignore[untyped-decorator]
def _worst(value: Any, step: Any, extra: Any, weight: float) -> float:
    worst = 0.0
    for e in range(len(value)):
        worst = min(worst, (step[e] + weight * extra[e]) / value[e])
    return worst


class NumpyArrays:
    """Plain NumPy."""

    def put(self, array: NDArray[Any]) -> Any:
        """See `Arrays`."""
        return np.ascontiguousarray(array)

    def get(self, array: Any) -> NDArray[Any]:
        """See `Arrays`."""
        return np.asarray(array)

    def sparse(self, matrix: Any) -> Any:
        """See `Arrays`."""
        return matrix

    def zeros(self, *shape: int) -> Any:
        """See `Arrays`."""
        return np.zeros(shape)

    def contiguous(self, array: Any) -> Any:
        """See `Arrays`."""
        return np.ascontiguousarray(array)

    def cholesky(self, array: Any) -> Any:
        """See `Arrays`."""
        return np.linalg.cholesky(array)

    def lower_inverse(self, array: Any) -> Any:
        """See `Arrays`: halves until small, so that nearly all work is matrix products."""
        size = array.shape[-1]
        if size <= 32:
            # LU of an upper triangular matrix does not pivot: this is plain back substitution
            inverse = np.linalg.inv(np.swapaxes(array, -1, -2))
            return np.ascontiguousarray(np.swapaxes(inverse, -1, -2))
        half = size // 2
        result = np.zeros_like(array)
        first = self.lower_inverse(np.ascontiguousarray(array[..., :half, :half]))
        second = self.lower_inverse(np.ascontiguousarray(array[..., half:, half:]))
        result[..., :half, :half] = first
        result[..., half:, half:] = second
        result[..., half:, :half] = -second @ (np.ascontiguousarray(array[..., half:, :half]) @ first)
        return result

    def clip(self, array: Any, low: float, high: float) -> Any:
        """See `Arrays`."""
        return np.clip(array, low, high)

    def stack_columns(self, left: Any, right: Any) -> Any:
        """See `Arrays`."""
        return np.concatenate([left, right], axis=-1)

    def longest(self, value: Any, step: Any, extra: Any, weights: tuple[float, ...]) -> NDArray[np.float64]:
        """See `Arrays`."""
        flat = value.ravel(), step.ravel(), extra.ravel()
        worst = np.array([_worst(*flat, weight) for weight in weights])
        return np.where(worst < 0, -1 / np.minimum(worst, -1e-300), np.inf)


class _TorchArrays:
    """torch in double precision on one device."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch = torch
        self.device = device

    def put(self, array: NDArray[Any]) -> Any:
        return self.torch.as_tensor(np.array(array), device=self.device)

    def get(self, array: Any) -> NDArray[Any]:
        return np.asarray(array.detach().cpu().numpy())

    def sparse(self, matrix: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return self.torch.sparse_csr_tensor(
                self.torch.as_tensor(matrix.indptr.astype(np.int64)),
                self.torch.as_tensor(matrix.indices.astype(np.int64)),
                self.torch.as_tensor(matrix.data),
                size=matrix.shape,
                dtype=self.torch.float64,
                check_invariants=True,
            ).to(self.device)

    def zeros(self, *shape: int) -> Any:
        return self.torch.zeros(shape, dtype=self.torch.float64, device=self.device)

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()

    def cholesky(self, array: Any) -> Any:
        factor, info = self.torch.linalg.cholesky_ex(array)
        if bool(info.any()):
            raise np.linalg.LinAlgError("not positive definite")
        return factor

    def lower_inverse(self, array: Any) -> Any:
        eye = self.torch.eye(array.shape[-1], dtype=array.dtype, device=array.device)
        return self.torch.linalg.solve_triangular(array, eye.expand_as(array), upper=False)

    def clip(self, array: Any, low: float, high: float) -> Any:
        return self.torch.clamp(array, low, high)

    def stack_columns(self, left: Any, right: Any) -> Any:
        return self.torch.cat([left, right], dim=-1)

    def longest(self, value: Any, step: Any, extra: Any, weights: tuple[float, ...]) -> NDArray[np.float64]:
        first, second = step / value, extra / value
        worst = np.array([float((first + weight * second).min()) for weight in weights])
        return np.where(worst < 0, -1 / np.minimum(worst, -1e-300), np.inf)


def numpy_arrays() -> Arrays:
    """Adapter for NumPy."""
    return NumpyArrays()


def torch_arrays(device: str = "cuda") -> Arrays:
    """Adapter for torch (extra ``privopt[gpu]``) on a device of its naming: "cuda", "cuda:1", "cpu".

    Raises:
        UsageError: no torch, or no such device.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise UsageError(f"{DEVICE}={device} needs torch, which is not installed: pip install 'privopt[gpu]'") from None
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{DEVICE}={device}: torch cannot use that device: {reason}") from None
    return _TorchArrays(torch, device)


def chosen_arrays() -> Arrays:
    """The library that the environment variable `DEVICE` asks for: a device of torch, or NumPy where it is not set.

    Raises:
        UsageError: as of `torch_arrays`.
    """
    device = os.environ.get(DEVICE, "")
    return torch_arrays(device) if device else numpy_arrays()
