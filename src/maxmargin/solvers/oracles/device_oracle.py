"""The oracles of a problem on a device of PyTorch, as solvers ask for them.

One object is the joint oracle of cutting planes, the max-oracle and the exp-oracle (joint_plane.py, max_oracle.py, exp_oracle.py).
Vectors are *working* vectors on the device (devices/tensor_graphs.py); planes have no index: psi is written out there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import as_numpy, device_of
from maxmargin.errors import OptionError
from maxmargin.inference.contract import check_temperature
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.oracles.exp_oracle import MeanMarginals, radius
from maxmargin.solvers.planes.arena import Arena
from maxmargin.solvers.planes.mean_plane import MeanPlane


class DeviceOracle:
    """Oracles on a device.

    Parameters
    ----------
    problem : FactorGraphs
    device : str
    loss_augmented : bool
        False leaves the task loss out, as the log objective does.
    inference : "auto", str or engine
        "auto" or "trees"; there is nothing else on a device.
    """

    certificate = "exact"
    #: A plane of all examples is all that is kept.
    has_images, recalls, keeps, compiled, thorough = False, False, False, None, None
    shards: tuple[tuple[int, int], ...] = ()

    def __init__(self, problem: Any, device: str, inference: Any = "auto", loss_augmented: bool = True) -> None:
        asked = getattr(inference, "name", inference)
        if asked not in ("auto", "trees"):
            raise OptionError(
                f'device="{device}" has max-product and sum-product on trees alone; inference="{asked}" is for device="cpu".'
            )
        from maxmargin.devices.tensor_oracle import TensorOracle

        if not loss_augmented and isinstance(problem, FactorGraphs):
            problem = problem.without_losses()
        self.problem = problem
        there: Any = device_of(device)
        self.device, self.tensors = there, TensorOracle(problem, there)
        self.oracle = self
        self.n_examples, self.n_weights = problem.n_examples, problem.n_weights
        self.size, self.weight = problem.n_weights, self.tensors.graphs.weight
        self.name, self.reason = "trees", f"{self.tensors.name}, on {device}"
        # Kernels are compiled before any clock starts.
        zero = self.device.zeros(self.size)
        self.tensors.maximise(zero)

    # ------------------------------------------------------------------------------------------------------- answers

    def find(self, u: Any, cache: Arena, threads: int, now: int) -> tuple[MeanPlane, Arena]:
        """The plane of largest slope at u."""
        return self.mean_plane(u, threads), cache

    def mean_plane(self, w: Any, threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w."""
        found = self.tensors.maximise(w)
        # The truth is a labeling, too: less than 0 is rounding.
        return MeanPlane(None, found.psi, found.ell, found.values.clamp(min=0.0))

    def mean(self, w: Any, temperature: float, threads: int) -> MeanMarginals:
        """Expectations at w, over all examples."""
        return MeanMarginals(*self.tensors.expect(w, check_temperature(temperature)))

    # ------------------------------------------------------------------------------------------------------- coordinates

    def cache(self, capacity: int) -> Arena:
        """No planes of single examples are kept."""
        return Arena.empty(1, 2, 1, 1, products=False)

    def flat(self, vector: Any) -> NDArray[np.float64]:
        """A working vector as flat weights, in NumPy."""
        w_v, w_f = (as_numpy(one) for one in self.tensors.graphs.split(vector))
        return np.asarray(self.problem.flat_weights(w_v, w_f))

    def working(self, flat: NDArray[np.float64]) -> Any:
        """Flat weights as a working vector on the device."""
        return self.device.put(np.concatenate([one.ravel() for one in self.problem.working_weights(flat)]))

    def radius(self) -> float:
        """A bound from above on the norms of all psi_m(y)."""
        return radius(self.problem)
