"""A device of PyTorch: vectors are tensors of float64, and only numbers come back."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maxmargin.errors import DataError, OptionError

#: Share of a GPU's free memory that is taken at most.
_SHARE = 0.9


class TorchDevice:
    """Tensors on a GPU, or, as "torch", on the processor."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.where = torch.device("cpu" if name == "torch" else name)
        if self.where.type == "cuda":
            if not torch.cuda.is_available():
                raise OptionError(f'device="{name}" asks for a GPU, and PyTorch sees none here; use device="cpu".')
            if (self.where.index or 0) >= torch.cuda.device_count():
                raise OptionError(f'device="{name}" is not there: PyTorch sees {torch.cuda.device_count()} GPU(s).')

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU."""
        return bool(self.where.type == "cuda")

    def current(self) -> AbstractContextManager[Any]:
        """Makes it PyTorch's current GPU for a while: kernels are launched there, wherever their tensors are."""
        return torch.cuda.device(self.where) if self.where.type == "cuda" else nullcontext()

    def zeros(self, *shape: int) -> Tensor:
        """An array of zeros."""
        return torch.zeros(shape, dtype=torch.float64, device=self.where)

    def empty(self, *shape: int) -> Tensor:
        """An array of anything."""
        return torch.empty(shape, dtype=torch.float64, device=self.where)

    def put(self, values: NDArray[Any]) -> Tensor:
        """A copy of NumPy's array, there."""
        return torch.from_numpy(np.array(values, order="C")).to(self.where)

    def dot(self, x: Tensor, y: Tensor) -> float:
        """The inner product of two vectors."""
        return float(x @ y)

    def blend(self, step: float, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write (1 - step) x + step y to out."""
        return torch.lerp(x, y, step, out=out)

    def check_room(self, needed: int, what: str) -> None:
        """Refuse, before anything is allocated, what the device's memory cannot hold."""
        if not self.is_gpu:
            return
        free = _SHARE * torch.cuda.mem_get_info(self.where)[0]
        if needed > free:
            raise DataError(
                f'{what} needs about {needed / 1e9:.1f} GB on device="{self.name}", which has {free / 1e9:.1f} GB to give; train '
                'on fewer examples or columns, or with device="cpu".'
            )
