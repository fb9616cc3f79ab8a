"""What the kernels of this folder are given: the dual point, the rules of visits and of bounds, and room for one example."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.jit import Struct
from maxmargin.problems.layout import Largest
from maxmargin.solvers.soft.structured import ScopeRoom


class Dual(Struct):
    """A dual point, and what the last visit of each example found there."""

    #: Marginals of the variables (states) and of the factors (tables), and the multipliers (messages).
    mu: NDArray[np.float64]
    table: NDArray[np.float64]
    nu: NDArray[np.float64]
    #: Of structured factors (structured.py): marginals of their scopes' states, and the mass and the labels of their atoms.
    inside: NDArray[np.float64]
    mass: NDArray[np.float64]
    atoms: NDArray[np.int32]
    #: Of each example: what its blocks could gain, and what its disagreement costs.
    block_gap: NDArray[np.float64]
    disagreement: NDArray[np.float64]


class Rules(Struct):
    """How examples are visited."""

    lam: float
    rho: float
    smoothing: float
    #: Sweeps over an example, and pairwise steps on a factor's table in each, at most.
    sweeps: int
    steps: int
    #: Whether multipliers move, and whether factors are left out.
    multipliers: bool
    edgeless: bool
    #: Of each factor template whether no two of its joint states share a block.
    distinct: NDArray[np.bool_]


class BoundRules(Struct):
    """What bounds are for."""

    lam: float
    rho: float
    #: For G_rho instead of G.
    soft: bool
    #: Rounds of descent on the messages of examples whose gap is above `enough`; whether all rounds may be those of pairs.
    polish: int = 0
    enough: float = 0.0
    only_pairs: bool = False


class Room(Struct):
    """Room for one example at a time."""

    #: In statistics coordinates: the blocks' scores, and how far their marginals have moved.
    z: NDArray[np.float64]
    moved: NDArray[np.float64]
    #: In states coordinates: scores, and sums of messages; and two vectors for the states of one variable.
    theta_v: NDArray[np.float64]
    message: NDArray[np.float64]
    flat: NDArray[np.float64]
    shared: NDArray[np.float64]
    #: In tables coordinates: scores, and marginals.
    theta_f: NDArray[np.float64]
    repaired: NDArray[np.float64]
    #: Messages with all states: of the example, or of one factor; and their max-marginals.
    delta: NDArray[np.float64]
    high: NDArray[np.float64]
    #: For one factor: scores of its table, and two vectors for the states of its variables.
    value: NDArray[np.float64]
    target: NDArray[np.float64]
    missing: NDArray[np.float64]
    #: The joint states of one factor that have mass.
    active: NDArray[np.int64]
    #: Block gap and disagreement.
    figures: NDArray[np.float64]
    structured: ScopeRoom

    @classmethod
    def of(cls, largest: Largest) -> Room:
        """Room for the largest example."""
        statistics, states, tables, slots = 2 * largest.buffer, largest.states, largest.tables, largest.slots
        sizes = (
            statistics, statistics, states, states, states, states, tables, tables, max(largest.deltas, slots, states),
            largest.deltas, max(largest.table, states), slots, slots,
        )  # fmt: skip
        active = np.empty(largest.table, np.int64)
        parts: tuple[Any, ...] = (*map(np.empty, sizes), active, np.empty(2), ScopeRoom.of(largest))
        return cls(*parts)
