"""Problems whose loss is of all rows together, as one joint example with a max-oracle.

    P(w) = lam/2 |w|^2 + H(w),     H(w) = max over labelings of all rows of  ell - w . psi,     psi = sum_i c_i x_i

A measure (counts.py, pairs.py) turns the scores X w into the coefficients c and the loss ell of the most violated labeling. Cutting
planes (`one-slack`) take tens to hundreds of rounds, each a product with X, a sort, and a product with its transpose.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.features import Features, KernelFeatures, add_row, score_row
from maxmargin.problems.layout import offsets
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Most shards of a sum over all rows, most numbers that their sums may take, and the least rows of a shard.
_SHARDS, _NUMBERS, _LEAST = 16, 1 << 26, 1 << 12


class MeasureProblem:
    """Rows, and a measure of all predictions together.

    Parameters
    ----------
    X : array, CSR matrix or Features (n, p)
    measure : CountMeasure or PairMeasure
        Of the n rows.
    units : int array (n,), optional
        Rows that can only be held out together, such as those of a query; numbers from 0. Default: every row by itself.
    constant : bool
        Whether the last column is constant: it gets no weight where the measure compares scores with each other alone.
    """

    #: One labeling of all rows.
    n_examples = 1
    n_variable_blocks, n_factor_blocks = 1, 0
    offers = ("max-oracle", "features", "kernel matrix")

    def __init__(self, X: Any, measure: Any, units: NDArray[np.int64] | None = None, constant: bool = False) -> None:
        features = X if isinstance(X, Features) else Features(X)
        if isinstance(features, KernelFeatures):
            raise OptionError(
                f"loss={measure.name!r} is for features, of which a kernel has none; n_basis=500 or so makes some of it."
            )
        if features.shape[0] != measure.n:
            raise DataError(f"X has {features.shape[0]} rows, but y has {measure.n}; expected a target for each row.")
        self.variable_features, self.measure = features, measure
        self.n_weights, self.constant = features.shape[1], constant
        self.units = np.arange(measure.n) if units is None else units
        #: (units,): 1 for all that is there; `with_weights` leaves out what has 0.
        self.weight = np.ones(int(self.units.max(initial=-1)) + 1)

    def with_weights(self, weights: ArrayLike | None) -> MeasureProblem:
        """The problem of the units with a weight above 0; they are in or out, and count the same.

        Parameters
        ----------
        weights : array
            A weight a unit.
        """
        if weights is None:
            return self
        return self.take(np.flatnonzero(np.asarray(weights) > 0.0))

    def with_variable_features(self, features: Features) -> MeasureProblem:
        """The same problem with other features of the rows.

        Parameters
        ----------
        features : Features
            As many rows as there are now.
        """
        return MeasureProblem(features, self.measure, self.units, self.constant)

    def take(self, units: NDArray[np.int64]) -> MeasureProblem:
        """The problem of some units.

        Parameters
        ----------
        units : int array
            Numbers of the units: rows, or queries.
        """
        rows = self._rows(units)
        kept = np.unique(self.units[rows], return_inverse=True)[1]
        features = Features(self.variable_features.matrix()[rows], self.variable_features.name)
        return MeasureProblem(features, self.measure.take(rows), kept, self.constant)

    def _rows(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        chosen = np.zeros(len(self.weight), bool)
        chosen[units] = True
        return np.flatnonzero(chosen[self.units])

    def split_weights(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64]]:
        """The weights as one block, a view.

        Parameters
        ----------
        w : array (d,)
            Weights.
        """
        return (w.reshape(1, -1),)

    def scores(self, w: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]:
        """Scores X w of all rows.

        Parameters
        ----------
        w : array (d,)
            Weights.
        threads : int
            Threads.
        """
        arrays, out, weights = self.variable_features.arrays, np.empty(self.measure.n), w.reshape(-1, 1)
        map_shards(lambda begin, end: _scores(arrays, weights, begin, end, out), self.shards, threads, pausing=True)
        return out

    @property
    def shards(self) -> list[tuple[int, int]]:
        """Ranges of rows, which depend on the data alone."""
        n = max(1, min(_SHARDS, self.measure.n // _LEAST, _NUMBERS // max(1, self.n_weights)))
        cuts = np.linspace(0, self.measure.n, n + 1).astype(int).tolist()
        return list(itertools.pairwise(cuts))

    def max_oracle(self, loss_augmented: bool = True) -> MeasureOracle:
        """The oracle.

        Parameters
        ----------
        loss_augmented : bool
            Always True: a measure has no oracle without its loss.
        """
        if not loss_augmented:
            raise OptionError(
                f"loss={self.measure.name!r} is trained by its most violated labelings, and by nothing else."
            )
        return MeasureOracle(self)

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """All that bounds depend on."""
        return (*self.variable_features.fingerprint_arrays(), *self.measure.fingerprint_arrays())

    # ------------------------------------------------------------------------------------------------ choosing C

    @property
    def kinds(self) -> NDArray[np.int64]:
        """What units should be held out in proportion to: classes of rows; or, of several rows, whether they differ."""
        kinds, n = self.measure.kinds, len(self.weight)
        if n == self.measure.n:
            return np.asarray(kinds)
        low, high = np.full(n, kinds.max()), np.zeros(n, np.int64)
        np.minimum.at(low, self.units, kinds)
        np.maximum.at(high, self.units, kinds)
        return (high > low).astype(np.int64)

    def scale_of_loss_and_features(self) -> tuple[float, float]:
        """The loss at w = 0, and the squared norm that its psi would have if rows were at right angles."""
        coefficients, ell = self.measure.find(np.zeros(self.measure.n))
        norms = np.asarray(self.variable_features.arrays.squared_norms)
        return ell, float(coefficients**2 @ norms)

    def loss_of(self, units: NDArray[np.int64], w: NDArray[np.float64]) -> float:
        """The loss of the predictions for some units; of all, where those lack a class or have no pairs.

        Parameters
        ----------
        units : int array
            Numbers of the units: rows, or queries.
        w : array (d,)
            Weights.
        """
        rows, scores = self._rows(units), self.scores(w)
        try:
            return float(self.measure.take(rows).loss(scores[rows]))
        except DataError:
            return float(self.measure.loss(scores))


class MeasureOracle:
    """The sort as a max-oracle; exact."""

    name = "sort"
    certificate = "exact"
    reason = "a sort finds the most violated labeling of all rows"

    def __init__(self, problem: MeasureProblem) -> None:
        self.problem = problem
        self.n_examples, self.n_weights, self.weight = 1, problem.n_weights, np.ones(1)
        # Compiled before any clock starts.
        self.mean_plane(np.zeros(self.n_weights), 1)

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The plane of largest slope at w; the bits do not depend on the threads."""
        psi, ell = self._find(w, threads)
        return MeanPlane.of(psi, ell, np.array([max(0.0, ell - float(np.sum(psi * w)))]))

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The plane of largest slope at w, in CSR."""
        psi, ell = self._find(w, 1)
        at = np.flatnonzero(psi)
        n = len(examples)
        rows = sp.csr_array((np.tile(psi[at], n), np.tile(at, n), offsets(np.full(n, len(at)))), (n, self.n_weights))
        return rows, np.full(n, ell)

    def _find(self, w: NDArray[np.float64], threads: int) -> tuple[NDArray[np.float64], float]:
        p = self.problem
        arrays = p.variable_features.arrays
        coefficients, ell = p.measure.find(p.scores(w, threads))

        def sum_of(begin: int, end: int) -> NDArray[np.float64]:
            out = np.zeros((self.n_weights, 1))
            _add_rows(arrays, coefficients, begin, end, out)
            return out

        psi, *more = map_shards(sum_of, p.shards, threads, pausing=True)
        for one in more:
            psi += one
        if p.constant and not p.measure.learns_threshold:
            psi[-1] = 0.0
        if ell < float(np.sum(psi[:, 0] * w)):
            # The truth, where it is one of the labelings, has a plane of zeros.
            return np.zeros(self.n_weights), 0.0
        return psi[:, 0], ell


@kernel
def _scores(features: Any, weights: Any, begin: int, end: int, out: Any) -> None:
    for row in range(begin, end):
        score_row(features, row, weights, 0, 1, out, row)


@kernel
def _add_rows(features: Any, coefficients: Any, begin: int, end: int, out: Any) -> None:
    for row in range(begin, end):
        if coefficients[row] != 0.0:
            add_row(features, row, out, 0, 1, coefficients, row, 1.0)
