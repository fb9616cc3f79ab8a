"""Feature matrices on a device: scores X W of all rows, and sums X' G over them.

Both ways read rows: of sparse features X and its transpose are kept. With Triton (sparse_kernels.py) no sum is added up in an order
that changes from call to call; PyTorch's own product on a GPU, which is taken where there is no Triton, gives no such promise.
Numbers are float64; float32 features become so. Features that were given dense, and are held in compressed rows because most of
them are 0 (problems/features.py), are dense again here where that does not take much more room: a GPU is far better at it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from maxmargin.devices.torch_device import TorchDevice
from maxmargin.problems.features import Features

#: How much more room features may take if they are dense again.
_DENSER = 4.0
#: Entries above which indices of a compressed matrix no longer are 32 bits wide.
_MOST = 2**31 - 1


class TensorFeatures:
    """A feature matrix (rows, p) on a device."""

    def __init__(self, features: Features, device: TorchDevice) -> None:
        self.shape, self.sparse = features.shape, not is_dense(features)
        #: Whether it is the single number 1, with which nothing need be multiplied.
        self.is_one = self.shape == (1, 1) and not self.sparse and float(features.arrays.dense[0, 0]) == 1.0
        self.matrix: Any
        if not self.sparse:
            rows = features.matrix()
            self.matrix = device.put((rows.toarray() if features.sparse else rows).astype(np.float64))
            return
        ones, rows = len(features.arrays.data) == 0, features.matrix().astype(np.float64)
        make = compressed_rows(device)
        self.matrix, self.turned = make(rows, ones, device), make(sp.csr_array(rows.T), ones, device)

    def scores(self, w: Tensor) -> Tensor:
        """X W, shape (rows, blocks), of weights (p, blocks)."""
        return w if self.is_one else self.matrix @ w

    def sums(self, g: Tensor) -> Tensor:
        """X' G, shape (p, blocks), of shares (rows, blocks)."""
        if self.is_one:
            return g
        return self.turned @ g if self.sparse else self.matrix.T @ g


def is_dense(features: Features) -> bool:
    """Whether features are dense on a device."""
    cells = 8.0 * features.shape[0] * features.shape[1]
    return not features.sparse or (features.compressed and cells <= _DENSER * 24.0 * len(features.arrays.indices))


def room(features: Features) -> int:
    """Bytes that features take on a device."""
    if is_dense(features):
        return 8 * features.shape[0] * features.shape[1]
    return (8 if len(features.arrays.data) == 0 else 24) * len(features.arrays.indices) + 24 * sum(features.shape)


def compressed_rows(device: TorchDevice) -> Any:
    """What makes a matrix of compressed rows: kernels of Triton, or PyTorch's own."""
    if device.is_gpu:
        try:
            from maxmargin.devices.sparse_kernels import SparseRows
        except ImportError:
            return torch_rows
        return SparseRows
    return torch_rows


def torch_rows(rows: sp.csr_array, ones: bool, device: TorchDevice) -> Tensor:
    """PyTorch's tensor of compressed rows."""
    kind = np.int32 if max(rows.nnz, *rows.shape) <= _MOST else np.int64
    parts = rows.indptr.astype(kind), rows.indices.astype(kind), rows.data
    with warnings.catch_warnings():
        # That these tensors are in beta state: products with matrices are all that is asked of them.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(*(device.put(part) for part in parts), size=rows.shape, check_invariants=False)
