"""The few array operations that the interior point needs, on NumPy or on torch.

The solver's arrays stay whatever the adapter made them; arithmetic operators, slices and ``@`` work
alike on both. torch is an option: it is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from privopt.arrays import Floats
from privopt.errors import UsageError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["DEVICE", "Array", "Arrays", "chosen_arrays", "torch_arrays"]

DEVICE = "PRIVOPT_DEVICE"
"""Environment variable: where the interior point computes."""


class Array(Protocol):
    """What the solver asks of an array: NumPy's and torch's both do it."""

    @property
    def T(self) -> Array: ...  # noqa: N802, D102  (the libraries' name)
    @property
    def mT(self) -> Array: ...  # noqa: N802, D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    def __getitem__(self, key: object) -> Array: ...
    def __setitem__(self, key: object, value: object) -> None: ...
    def __neg__(self) -> Array: ...
    def __add__(self, other: Array | float) -> Array: ...
    def __radd__(self, other: Array | float) -> Array: ...
    def __sub__(self, other: Array | float) -> Array: ...
    def __rsub__(self, other: Array | float) -> Array: ...
    def __mul__(self, other: Array | float) -> Array: ...
    def __rmul__(self, other: Array | float) -> Array: ...
    def __truediv__(self, other: Array | float) -> Array: ...
    def __rtruediv__(self, other: Array | float) -> Array: ...
    def __matmul__(self, other: Array) -> Array: ...
    def sum(self, axis: int | None = None) -> Array: ...  # noqa: D102
    def reshape(self, *shape: int) -> Array: ...  # noqa: D102
    def __float__(self) -> float: ...


def _own(array: Array) -> Floats:
    return cast("Floats", array)


def _as(array: Floats) -> Array:
    return cast("Array", array)


class Arrays:
    """What the interior point asks of an array library: NumPy, here."""

    library: ModuleType = np

    def put(self, array: Floats) -> Array:
        """Floats of the library from a NumPy array."""
        return _as(np.ascontiguousarray(array))

    def get(self, array: Array) -> Floats:
        """NumPy array from an array of the library."""
        return np.asarray(_own(array))

    def sparse(self, matrix: csr_array) -> Array:
        """Sparse matrix of the library from SciPy's CSR; knows ``@`` with a matrix of two dimensions."""
        return cast("Array", matrix)

    def zeros(self, *shape: int) -> Array:
        """Floats of zeros."""
        return _as(np.zeros(shape))

    def contiguous(self, array: Array) -> Array:
        """The array with its last axis contiguous in memory."""
        return _as(np.ascontiguousarray(_own(array)))

    def cholesky(self, array: Array) -> Array:
        """Lower Cholesky factors of a batch; raises `numpy.linalg.LinAlgError`."""
        return _as(np.asarray(np.linalg.cholesky(_own(array)), dtype=np.float64))

    def lower_inverse(self, array: Array) -> Array:
        """Inverses of a batch of lower triangular matrices.

        LU of an upper triangular matrix does not pivot, so NumPy's is plain back substitution.
        """
        inverse = np.linalg.inv(np.swapaxes(_own(array), -1, -2))
        return _as(np.ascontiguousarray(np.swapaxes(inverse, -1, -2)))

    def clip(self, array: Array, low: float, high: float) -> Array:
        """Elementwise clip."""
        return cast("Array", self.library.clip(array, low, high))

    def least(self, array: Array) -> float:
        """The smallest entry."""
        return float(self.library.min(array))

    def stack_columns(self, left: Array, right: Array) -> Array:
        """Two batches of matrices side by side."""
        return cast("Array", self.library.concatenate([left, right], axis=-1))


class _TorchArrays(Arrays):
    """torch in double precision on one device."""

    def __init__(self, torch: ModuleType, device: str) -> None:
        self.library = torch
        self.device = device

    def put(self, array: Floats) -> Array:
        return cast("Array", self.library.as_tensor(np.array(array), device=self.device))

    def get(self, array: Array) -> Floats:
        return np.asarray(self.library.Tensor.cpu(array).numpy())

    def sparse(self, matrix: csr_array) -> Array:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            tensor = self.library.sparse_csr_tensor(
                self.library.as_tensor(matrix.indptr.astype(np.int64)),
                self.library.as_tensor(matrix.indices.astype(np.int64)),
                self.library.as_tensor(matrix.data),
                size=matrix.shape,
                dtype=self.library.float64,
                check_invariants=True,
            )
        return cast("Array", tensor.to(self.device))

    def zeros(self, *shape: int) -> Array:
        return cast("Array", self.library.zeros(shape, dtype=self.library.float64, device=self.device))

    def contiguous(self, array: Array) -> Array:
        return cast("Array", self.library.Tensor.contiguous(array))

    def cholesky(self, array: Array) -> Array:
        factor, info = self.library.linalg.cholesky_ex(array)
        if bool(info.any()):
            raise np.linalg.LinAlgError("not positive definite")
        return cast("Array", factor)

    def lower_inverse(self, array: Array) -> Array:
        eye = self.library.eye(array.shape[-1], dtype=self.library.float64, device=self.device)
        return cast("Array", self.library.linalg.solve_triangular(array, eye.expand(array.shape), upper=False))


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


def chosen_arrays() -> Arrays | None:
    """The library that the environment variable `DEVICE` asks for: a device of torch, or None where it is not set.

    Raises:
        UsageError: as of `torch_arrays`.
    """
    device = os.environ.get(DEVICE, "")
    return torch_arrays(device) if device else None
