"""BCFW: block-coordinate Frank-Wolfe with a max-oracle.

Lacoste-Julien, Jaggi, Schmidt and Pletscher, Block-Coordinate Frank-Wolfe Optimization for Structural SVMs, ICML 2013. The
dual of

    P(w) = lam/2 |w|^2 + 1/M sum_m H_m(w),      H_m(w) = max_y ell_m(y) - w . psi_m(y)

has a block for each example, a distribution alpha_m over its labelings (planes/arena.py). A visit of an example asks the oracle for
the labeling that attains H_m and improves the block exactly; the block's duality gap comes for free, and

    P(w) - f(alpha) = 1/M sum_m weight_m [ H_m(w) - sum_y alpha_m(y) (ell_m(y) - w . psi_m(y)) ]

``BCFW.plain()`` is the algorithm of the paper: a Frank-Wolfe step with exact line search on a uniformly drawn example. The
default spends far fewer oracle calls, by these measures:

- *Planes are kept* and tried before the oracle (Shah, Kolmogorov and Lampert 2015): accepted if the best of them gains at least a
  quarter of the gap last seen at this example, and a hundredth of the mean gap (Osokin, Alayrac, Lukasewitz, Dokania and
  Lacoste-Julien 2016).
- *Corrective steps*: a visit solves the small quadratic program over all planes of the block, by pairwise steps on their Gram
  matrix.
- *Sampling by gap* (Osokin et al.), refreshed at checks, whose labelings join the planes too.
- *A proximal term* where C is large (proximal.py).
- *Batches* (Wang, Sadhanala, Dai, Neiswanger, Sra and Xing 2016): some examples are visited at the same weights, in threads, and
  their blocks step together, by so much less as their moves overlap, which is measured (visits.py).
- *Cached passes*: after each pass, further ones that never ask the oracle, for as long as they gain more for their cost than the
  last pass did. The cost is counted in operations, not in seconds, so that a run can be repeated to the bit.

The certificate depends on the oracle: "exact" if its labelings are the best ones, "relaxed" if they range over the local
polytope (linear_program, graph_cut), "none" if it may miss the best (greedy, loopy_bp, ...): then the value reported as primal is
only what was found. `dual_decomposition` may miss the best, too, but bounds its score: with it the certificate is "exact", since
labelings bound the exact problem from below and the bounds do so from above, though the gap need not close.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.frank_wolfe.block_run import BlockRun
from maxmargin.solvers.frank_wolfe.joint import JointRun
from maxmargin.solvers.frank_wolfe.plain import PlainRun
from maxmargin.solvers.frank_wolfe.plane_run import PlaneRun
from maxmargin.solvers.frank_wolfe.python import PythonRun


class BCFW(Solver):
    """Block-coordinate Frank-Wolfe.

    Parameters
    ----------
    inference : "auto", str or engine
        The max-oracle: "auto" is `trees` on graphs without cycles, `graph_cut` on binary pairs, exact where that is cheap
        (small state spaces, small width), else `dual_decomposition`.
    steps : "corrective", "pairwise", "joint" or "plain"
        How a visit improves a block: solve it over its planes, one pairwise step, or the paper's Frank-Wolfe step. With "joint",
        batches of blocks are solved side by side, in threads, and step together: worth it where the oracle is slow.
    sampling : "gap" or "uniform"
        How examples are drawn for a pass.
    cache : int
        Planes kept an example; they grow beyond it where all have mass. 0 asks the oracle at every visit.
    averaging : bool
        Also keep the weighted mean of the weights after each pass, and report it where its value is lower.
    batch : int
        Examples per call of an engine that works outside the compiled loop, and per step with ``steps="joint"``.
    """

    name = "bcfw"
    requires = ("max-oracle",)
    certificates = ("exact", "relaxed", "none")
    keeps = "the labelings found, a few for each example"
    loss_tables = False
    orders_columns = True
    paper = "Lacoste-Julien, Jaggi, Schmidt and Pletscher 2013"
    kernels = True
    reweightable = True

    def __init__(
        self,
        inference: str | Engine = "auto",
        steps: str = "corrective",
        sampling: str = "gap",
        cache: int = 20,
        averaging: bool = False,
        batch: int = 4,
    ) -> None:
        self.inference = inference
        self.steps = steps
        self.sampling = sampling
        self.cache = cache
        self.averaging = averaging
        self.batch = batch

    @classmethod
    def plain(cls, inference: str | Engine = "auto") -> BCFW:
        """The algorithm of the paper, with its weighted averaging.

        Parameters
        ----------
        inference : str or engine
            Who finds labelings.
        """
        return cls(inference, steps="plain", sampling="uniform", cache=0, averaging=True)

    def check_options(self, problem: Any) -> None:
        """Refuse, in a sentence, options that cannot be."""
        if self.steps not in ("corrective", "pairwise", "joint", "plain"):
            raise OptionError(f'steps={self.steps!r} is not known; use "corrective", "pairwise", "joint" or "plain".')
        if self.sampling not in ("gap", "uniform"):
            raise OptionError(f'sampling={self.sampling!r} is not known; use "gap" or "uniform".')
        for name, least in (("cache", 0), ("batch", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise OptionError(f"{name}={value!r} is not possible; use a whole number of at least {least}.")

    def make_run(self, problem: Any, lam: float, random_state: Any, threads: int) -> BlockRun[Any] | PythonRun:
        """What does the work."""
        if not isinstance(problem, FactorGraphs):
            return PythonRun(self, problem, lam, random_state, threads)
        kinds: dict[str, type[BlockRun[Any]]] = {"plain": PlainRun, "joint": JointRun}
        kind = kinds.get(self.steps, PlaneRun)
        return kind(self, problem, lam, random_state, threads)
