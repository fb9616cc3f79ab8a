"""Products with a compressed sparse matrix on a GPU, in an order that is always the same.

    out (rows, K) = X W,      X in compressed rows, W (columns, K)

A program takes some entries of one row, `_SEGMENT` at most, and adds up the rows of W that they name, `_AT_ONCE` at a time.
Rows with more entries are cut into *segments*, whose sums are added up by a second kernel: of text, some columns have an entry in
nearly every row, and most have one or two, so that the transpose has rows of both kinds.
"""

# Types of a kernel's parameters are Triton's business.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import triton
import triton.language as tl
from torch import Tensor

from maxmargin.devices.torch_device import TorchDevice

#: Most entries of a program, and those that are read at once.
_SEGMENT, _AT_ONCE = 256, 16


class SparseRows:
    """A matrix in compressed rows on a GPU.

    Parameters
    ----------
    rows : csr_array
    ones : bool
        Whether all entries are 1, so that none is kept.
    """

    def __init__(self, rows: sp.csr_array, ones: bool, device: TorchDevice) -> None:
        self.shape, indptr = rows.shape, rows.indptr.astype(np.int64)
        n_segments = np.maximum(1, -(-np.diff(indptr) // _SEGMENT))
        row = np.repeat(np.arange(len(n_segments)), n_segments)
        first = np.concatenate([[0], np.cumsum(n_segments)])
        start = indptr[row] + _SEGMENT * (np.arange(len(row)) - first[row])
        end = np.minimum(start + _SEGMENT, indptr[row + 1])
        several = n_segments > 1
        # Where the sum of a segment goes: the row itself, or behind all rows a place of its own.
        place = np.where(several[row], self.shape[0] + np.cumsum(several[row]) - 1, row)
        self.room = self.shape[0] + int(several[row].sum())
        self.start, self.end, self.place = device.put(start), device.put(end), device.put(place)
        long = np.flatnonzero(several)
        ends = np.cumsum(n_segments[long])
        self.long, self.parts_end = device.put(long), device.put(self.shape[0] + ends)
        self.parts = device.put(self.shape[0] + ends - n_segments[long])
        self.indices = device.put(rows.indices.astype(np.int32))
        self.values = self.indices if ones else device.put(rows.data.astype(np.float64))
        self.ones = ones

    def __matmul__(self, w: Tensor) -> Tensor:
        """X W."""
        w = w.contiguous()
        n_blocks = w.shape[1]
        width = triton.next_power_of_2(n_blocks)
        out = w.new_empty((self.room, n_blocks))
        warps = 1 if width <= 32 else 4
        _sum_entries[(len(self.start),)](
            w, self.indices, self.values, self.start, self.end, self.place, out, n_blocks, width, _AT_ONCE, self.ones,
            num_warps=warps,
        )  # fmt: skip
        if len(self.long):
            _sum_parts[(len(self.long),)](
                out, self.parts, self.parts_end, self.long, n_blocks, width, _AT_ONCE, num_warps=warps
            )
        return out[: self.shape[0]]


@triton.jit
def _sum_entries(
    w, indices, values, start, end, place, out, K: tl.constexpr, W: tl.constexpr, N: tl.constexpr, ones: tl.constexpr
):
    segment = tl.program_id(0)
    first, last, to = tl.load(start + segment), tl.load(end + segment), tl.load(place + segment)
    k = tl.arange(0, W)
    total = tl.zeros((N, W), tl.float64)
    for begin in range(first, last, N):
        at = begin + tl.arange(0, N)
        inside = at < last
        column = tl.load(indices + at, inside, 0).to(tl.int64)
        row = tl.load(w + column[:, None] * K + k[None, :], inside[:, None] & (k < K)[None, :], 0.0)
        if ones:
            total += row
        else:
            total += tl.load(values + at, inside, 0.0)[:, None] * row
    tl.store(out + to * K + k, tl.sum(total, 0), k < K)


@triton.jit
def _sum_parts(out, start, end, place, K: tl.constexpr, W: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    first, last, to = tl.load(start + row), tl.load(end + row), tl.load(place + row)
    k = tl.arange(0, W)
    total = tl.zeros((N, W), tl.float64)
    for begin in range(first, last, N):
        at = begin + tl.arange(0, N)
        total += tl.load(out + at[:, None] * K + k[None, :], (at < last)[:, None] & (k < K)[None, :], 0.0)
    tl.store(out + to * K + k, tl.sum(total, 0), k < K)
