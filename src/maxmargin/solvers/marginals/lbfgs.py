"""L-BFGS on smooth objectives: conditional random fields, and the softmax margin.

    P(w)     = lam/2 |w|^2 + 1/M sum_m weight_m H_m,1(w)                          (exp_oracle.py)
    H_m,1(w) = log sum_y exp(ell_m(y) - w . psi_m(y))                            objective="softmax-margin"
               log sum_y exp(-w . psi_m(y)), the negative log-likelihood         objective="log"

The softmax margin is eq. (1) of X. Zhang, A. Saha and S. V. N. Vishwanathan, Accelerated Training of Max-Margin Markov Networks
with Kernels, ALT 2011, as printed there for conditional random fields (and Gimpel and Smith, Softmax-Margin CRFs, NAACL 2010): the
likelihood of a field in which wrong labelings are more likely by exp of their loss. It bounds the hinge from above, and its
distribution at the optimum is not one of the labels; "log" leaves the loss out, and its marginals are probabilities.

    grad P   = lam w - psi,                                    psi the mean of weight_m E psi_m at temperature 1

For any distributions p_m over labelings, D(p) = mean of weight_m (entropy(p_m) + E ell_m) - |psi(p)|^2 / (2 lam) bounds P from
below. At the marginals of w themselves every term is at hand, and the gap is that of a strongly convex function:

    D = mean of weight_m H_m,1(w) + w . psi - |psi|^2 / (2 lam),      P(w) - D = |grad P|^2 / (2 lam)

The direction is that of the two-loop recursion (Nocedal and Wright, Numerical Optimization, algorithm 7.4) over the last
`memory` pairs s = w' - w, y = grad' - grad. It is computed in coordinates: with the inner products of all pairs at hand, both
loops run on numbers, and the pairs are read twice, once for their products with the gradient, once to sum them up; all in ranges
of a fixed length, so that the bits do not depend on the threads (vectors.py). The step is bracketed until it satisfies the weak
Wolfe conditions (Lewis and Overton, Math. Programming 2013, algorithm 4.6),

    P(w + t d) <= P(w) + 1e-4 t d . grad,      d . grad(w + t d) >= 0.9 d . grad

with t between the two ends of a bracket where the slopes at 0 and at its last end would let it be 0. One pass is one call of the
oracle for all examples: a step that is accepted, most of the time.

*Text.* Chains with sparse features have an oracle that is faster in coordinates of its own (packed_chains.py), which also makes
`_ONLINE` passes of stochastic gradient descent before the first step, if there are enough examples and no earlier state. From then
on L-BFGS works in the variables w / r, with the gradient r grad, where r are 1 / sqrt of bounds of the Hessian's diagonal: its
curvature is about 1 in all of them, whether a feature is rare or frequent. Pairs are kept in single precision there: they are
directions, and all sums that certify anything are of doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.devices import copied
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.solvers.core.run import State
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.marginals.exp_run import ExpRun
from maxmargin.solvers.marginals.lbfgs_steps import DeviceSteps, ProcessorSteps
from maxmargin.solvers.oracles.oracle_run import earlier_of

#: The two Wolfe conditions.
_DECREASE, _CURVATURE = 1e-4, 0.9
#: Relative error of a value: a decrease below it is none.
_ROUNDING = 1e-14
#: Share of a bracket that a step keeps away from its ends.
_APART = 0.1
#: Passes of stochastic gradient descent at the beginning, and the examples that they are for.
_ONLINE, _MANY = 3, 512


@dataclass
class LBFGSState(State):
    """The weights, the search along a direction, and the pairs."""

    on_device = ("w", "gradient", "direction", "best", "pairs")

    w: NDArray[np.float64]
    gradient: NDArray[np.float64]
    direction: NDArray[np.float64]
    best: NDArray[np.float64]
    #: (2, memory, d): all s, all y; pair k stands at k modulo memory.
    pairs: NDArray[np.float64]
    #: (2, memory, memory): products s_i . y_j and y_i . y_j.
    products: NDArray[np.float64]
    lam: float
    value: float = math.inf
    slope: float = 0.0
    #: The step, and the bracket around it.
    step: float = 0.0
    low: float = 0.0
    high: float = math.inf
    #: Pairs that were added since the last fresh start.
    n_pairs: int = 0
    #: (d,), what the variables are multiplied by, or none; passes of gradient descent that are left, and their rate.
    scale: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    online: int = 0
    rate: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the pairs and vectors."""
        return int(self.pairs.nbytes + 3 * self.w.nbytes + self.scale.nbytes)


class LBFGS(Solver):
    """L-BFGS for smooth objectives.

    Parameters
    ----------
    inference : "auto", str or engine
        The exp-oracle of factor graphs.
    objective : "log" or "softmax-margin"
        The margin's objective is not smooth.
    memory : int
        Pairs that are remembered.
    device : str
        "cpu", "cuda", "cuda:1" and so on, or "torch" (`maxmargin.devices`).
    """

    name = "lbfgs"
    requires = ("marginals",)
    certificates = ("exact", "none")
    keeps = "a dozen vectors of weights"
    paper = "Liu and Nocedal 1989"
    objectives = ("log", "softmax-margin")
    on_devices = True

    def __init__(
        self, inference: str | Engine = "auto", objective: str = "log", memory: int = 6, device: str = "cpu"
    ) -> None:
        self.inference = inference
        self.objective = objective
        self.memory = memory
        self.device = device

    def check_options(self, problem: Any) -> None:
        """Refuse an objective that is not smooth, and a memory of nothing."""
        if self.objective not in self.objectives:
            raise OptionError(
                f'The solver "lbfgs" needs a smooth objective, and objective={self.objective!r} is not; '
                'use objective="log", or "excessive-gap", "exponentiated-gradient" or "bcfw" for the margin.'
            )
        if not (isinstance(self.memory, int) and self.memory >= 1):
            raise OptionError(f"memory={self.memory!r} is not possible; it must be a whole number from 1.")

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> LBFGSRun:
        """What does the work."""
        return LBFGSRun(self, problem, lam, random_state, threads)


class LBFGSRun(ExpRun[LBFGSState]):
    """One run."""

    solver: LBFGS
    state_type = LBFGSState

    def __init__(self, solver: LBFGS, problem: Any, lam: float, random_state: Any, threads: int) -> None:
        super().__init__(solver, problem, lam, random_state, threads)
        oracle: Any = self.oracle
        #: The oracle whose coordinates the vectors have, if they are not the problem's.
        self.packed = oracle.packed() if hasattr(oracle, "packed") else None
        self.n_weights = self.oracle.n_weights if self.packed is None else self.packed.n_weights
        #: Room for the next gradient, and for points along a direction.
        self.spare = self.device.empty(self.n_weights)
        self.points: list[Any] = []
        here = self.device.name == "cpu"
        #: What is done to vectors.
        self.vectors: Any = ProcessorSteps(self.n_weights, threads) if here else DeviceSteps()

    def begin(self, earlier: LBFGSState | None) -> LBFGSState:
        """No weights, or those of an earlier run; the memory is empty."""
        d, n = self.n_weights, self.solver.memory
        zero, gradient, direction, best = (self.device.zeros(d) for _ in range(4))
        pairs = self.device.zeros(2, n, d) if self.packed is None else np.zeros((2, n, d), np.float32)
        now = LBFGSState(zero, gradient, direction, best, pairs, np.zeros((2, n, n)), self.lam)
        if earlier is not None:
            earlier = earlier_of(now, earlier, ("w",))
            now.w, now.scale = copied(earlier.w), earlier.scale.copy()
        elif self.packed is not None and self.oracle.n_examples >= _MANY:
            now.online, now.next_check = _ONLINE, _ONLINE + 1
        self.vectors.compile(zero, pairs, now.scale)
        return now

    def steps(self, now: LBFGSState, stop: Callable[[], bool]) -> None:
        """One point along the direction: accept it and find the next direction, or narrow the bracket."""
        if now.online > 0:
            self.descend(now, stop)
            return
        w, gradient = self.point(now), self.spare
        norm = self.vectors.go_along(now.w, now.direction, now.step, w)
        value, slope = self.look(now, w, norm, gradient)
        if value > now.value + _DECREASE * now.step * now.slope + _ROUNDING * abs(value):
            now.high = now.step
        elif slope < _CURVATURE * now.slope:
            now.low = now.step
        else:
            self.turn(now, w, gradient, value)
            return
        if now.high < math.inf:
            margin = _APART * (now.high - now.low)
            # The slope is 0 here if it is linear; where it did not grow there is no such place.
            zero = now.step * now.slope / (now.slope - slope) if slope > now.slope else 0.5 * (now.low + now.high)
            now.step = min(max(zero, now.low + margin), now.high - margin)
        else:
            now.step = 2.0 * now.low
        if now.high < math.inf and now.high - now.low <= _ROUNDING * now.high:
            # Rounding hides all decrease along this direction: forget it.
            now.n_pairs = 0
            self.turn(now, now.w, now.gradient, now.value)

    def descend(self, now: LBFGSState, stop: Callable[[], bool]) -> None:
        """A pass of stochastic gradient descent; the last one measures the variables."""
        assert self.packed is not None
        n = self.packed.n_examples
        order = np.random.default_rng([self.seed, now.online]).permutation(n)
        if now.online == _ONLINE:
            now.rate, visited = self.packed.rate(self.lam, order)
            now.n_oracle_calls += visited
        curvature = np.zeros(self.n_weights) if now.online == 1 else None
        begun = (_ONLINE - now.online) * n
        total = self.packed.descend(now.w, order, now.rate, self.lam, begun, curvature, stop)
        now.n_oracle_calls += n
        now.online -= 1
        if now.rate == 0.0 or not math.isfinite(total):
            # No rate is better than none.
            now.w[:] = 0.0
            now.online, now.next_check = 0, now.n_passes + 2
        elif curvature is not None:
            now.scale = self.packed.scales(curvature, self.lam)

    def point(self, now: LBFGSState) -> Any:
        """Room for a point that is neither where the run stands nor the best one: new memory costs as much as to fill it."""
        for one in self.points:
            if one is not now.w and one is not now.best:
                return one
        self.points.append(self.device.empty(self.n_weights))
        return self.points[-1]

    def look(self, now: LBFGSState, w: Any, norm: float, gradient: Any) -> tuple[float, float]:
        """Both bounds at w, of squared norm `norm`; its gradient; returns the value and the slope along the direction."""
        if self.packed is None:
            found = self.expect(now, w, 1.0)
            psi, values, share = found.psi, found.values, 1.0
        else:
            now.n_oracle_calls += self.packed.n_examples
            (psi, values), share = self.packed.mean(w, self.threads), 1.0 / self.packed.n_examples
        value = float(self.lam / 2.0 * norm + self.mean(values))
        square, slope = self.vectors.find_gradient(w, psi, share, self.lam, now.direction, gradient)
        now.dual = max(now.dual, value - square / (2.0 * self.lam))
        if value < now.primal:
            now.primal, now.best = value, w
        return value, slope

    def turn(self, now: LBFGSState, w: Any, gradient: Any, value: float) -> None:
        """Go to w, and find the direction from there."""
        m = self.solver.memory
        newest = now.n_pairs % m
        # The product is not positive at the first point and where nothing but rounding moved; then nothing is remembered.
        product = self.vectors.add_pair(w, now.w, gradient, now.gradient, now.scale, now.pairs[:, newest])
        now.n_pairs = now.n_pairs + 1 if now.step > 0.0 and product > 0.0 else 0
        if gradient is not now.gradient:
            self.spare = now.gradient
        now.w, now.gradient, now.value = w, gradient, value
        n = min(now.n_pairs, m)
        order = (now.n_pairs - n + np.arange(n)) % m
        if n:
            newest = int(order[-1])
            with_y, with_gradient = self.vectors.products(now.pairs, newest, gradient, now.scale, n)
            now.products[:, :n, newest] = with_y
            now.products[1, newest, :n] = with_y[1]
            shares, own = two_loops(now.products, order, with_gradient)
        elif len(now.scale):
            shares, own = np.zeros((2, 0)), -1.0
        else:
            shares, own = np.zeros((2, 0)), -1.0 / max(1.0, math.sqrt(self.device.dot(gradient, gradient)))
        now.slope = self.vectors.combine(now.pairs, shares, own, gradient, now.scale, now.direction)
        now.step, now.low, now.high = 1.0, 0.0, math.inf

    def measure(self, now: LBFGSState, off_schedule: bool) -> dict[str, float]:
        """Both bounds came with the pass, but for one of gradient descent."""
        if not math.isfinite(now.primal):
            self.look(now, now.w, self.device.dot(now.w, now.w), self.spare)
        if not off_schedule:
            now.next_check = now.n_passes + 1
        return {"step": now.step}

    def weights(self, now: LBFGSState) -> NDArray[np.float64]:
        """The flat weights of the best primal value."""
        return self.flat(now.best) if self.packed is None else self.packed.flat(now.best)


def two_loops(
    products: NDArray[np.float64], order: NDArray[np.int64], with_gradient: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The direction in coordinates: shares (2, n) of all s and all y, and the share of the gradient.

    `order` has the pairs from the oldest to the newest, `with_gradient` (2, n) the products of all s and y with the gradient.
    Of the products s_i . y_j, only those with y_j not older than s_i are read.
    """
    n = len(order)
    (sy, yy), (sg, yg) = products[:, :n, :n], with_gradient
    down, up = np.zeros(n), np.zeros(n)
    for i in order[::-1]:
        down[i] = (sg[i] - np.sum(sy[i] * down)) / sy[i, i]
    scale = sy[order[-1], order[-1]] / yy[order[-1], order[-1]]
    for i in order:
        heard = scale * (yg[i] - np.sum(yy[i] * down)) + np.sum(up * sy[:, i])
        up[i] = down[i] - heard / sy[i, i]
    return np.stack([-up, scale * down]), -scale
