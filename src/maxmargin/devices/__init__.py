"""Where a solver's vectors are, and who works on them: the processor, or a device of PyTorch.

A solver that works on all examples at once (`Solver.on_devices`) does little with its vectors: it adds them up, takes inner
products and gives them to its oracle. A `Device` has what `+` and `*` do not say; `processor.py` is NumPy with compiled kernels in
threads, `torch_device.py` is PyTorch, which is imported when it is first asked for.

    "cpu"               the processor, by compiled kernels: the rule
    "cuda", "cuda:1"    a GPU, by PyTorch
    "torch"             PyTorch on the processor: the code of the GPU where there is none
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices.processor import Processor
from maxmargin.errors import OptionError


class Device(Protocol):
    """Vectors of one kind, and what solvers do to them beside arithmetic."""

    name: str

    def zeros(self, *shape: int) -> Any:
        """An array of zeros."""

    def empty(self, *shape: int) -> Any:
        """An array of anything."""

    def put(self, values: NDArray[Any]) -> Any:
        """A copy of NumPy's array, there."""

    def dot(self, x: Any, y: Any) -> float:
        """The inner product of two vectors."""

    def blend(self, step: float, x: Any, y: Any, out: Any) -> Any:
        """Write (1 - step) x + step y to out, and return it."""


def check_device(device: Any) -> str:
    """A device's name; refuses what is none."""
    if not isinstance(device, str) or not re.fullmatch(r"cpu|torch|cuda(:\d+)?", device):
        raise OptionError(f'device={device!r} is not known; use "cpu", "cuda", "cuda:1" and so on, or "torch".')
    return device


def device_of(name: str, threads: int = 1) -> Device:
    """The device of a name; `threads` are those of the processor."""
    if check_device(name) == "cpu":
        return Processor(threads)
    try:
        from maxmargin.devices.torch_device import TorchDevice
    except ImportError as error:
        raise OptionError(
            f"device={name!r} needs PyTorch, which is not installed: pip install 'maxmargin[torch]'."
        ) from error
    return TorchDevice(name)


def copied(x: Any) -> Any:
    """A copy of an array of either kind."""
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def as_numpy(x: Any) -> NDArray[Any]:
    """An array of either kind as NumPy's."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.cpu().numpy())


__all__ = ["Device", "Processor", "as_numpy", "check_device", "copied", "device_of"]
