"""The oracles of parsing: charts that answer solvers, over shards of sentences in threads.

`ParseOracle` is a max-oracle (oracles/max_oracle.py). The plane of a derivation y is psi = phi(truth) - phi(y), ell = loss(y).
Where the loss is "brackets" it is in the chart; where it is "zero-one", the best derivation that is not the truth is among the
two best.

`ParseExpectations` has the soft maximum in the place of the maximum: with p(y) ~ exp((loss(y) + w . phi(y)) / T),

    value_m = T log sum_y exp((loss(y) + w . phi(y) - w . phi(truth)) / T)  >=  H_m(w)
    psi_m   = phi(truth) - E phi(y) = -d value_m / d w,      ell_m = E loss(y)

"zero-one" has a closed form. With p the probability of the truth without the loss, and Z without it, too,

    f = 1 / (1 - p (1 - exp(-scale / T))),   value_m = T log Z + scale - T log f - w . phi(truth)
    psi_m = f (phi(truth) - E phi(y)),       ell_m = scale f (1 - p)

in which rounding of 1 - p counts exp(scale / T) times, so that lower temperatures than scale / 15 are refused.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import DataError, TemperatureError
from maxmargin.jit import kernel
from maxmargin.parallel.threads import map_shards
from maxmargin.problems.layout import offsets
from maxmargin.solvers.oracles.exp_oracle import MeanMarginals
from maxmargin.solvers.planes.mean_plane import MeanPlane

#: Most shards of a sum over all examples, and most numbers that their sums may take.
_SHARDS, _NUMBERS = 16, 1 << 26
#: Most that the zero-one loss may be, over the temperature.
_STEEP = 15.0


class Found(NamedTuple):
    """Derivations of some examples and their task losses; the slopes of their planes, -inf where there is none but the truth.

    Features of a plane are multiplied by `factor`, 1 or, for slack rescaling, the loss; `bound` is what no slope exceeds.
    """

    start: NDArray[np.int64]
    rows: Any
    ell: NDArray[np.float64]
    slope: NDArray[np.float64]
    factor: NDArray[np.float64]
    bound: NDArray[np.float64]


class _Oracle:
    """What both have in common."""

    name = "cky"

    def __init__(self, problem: Any, loss_augmented: bool = True) -> None:
        self.problem, self.loss_augmented = problem, loss_augmented
        self.n_examples, self.n_weights, self.weight = problem.n_examples, problem.n_weights, problem.weight
        n = max(1, min(_SHARDS, self.n_examples, _NUMBERS // max(1, self.n_weights)))
        cuts = np.linspace(0, self.n_examples, n + 1).astype(int).tolist()
        self.shards = list(itertools.pairwise(cuts))
        self.units = problem.units if loss_augmented and problem.loss == "brackets" else None
        self.zero_one = loss_augmented and problem.loss == "zero-one"


class ParseOracle(_Oracle):
    """The chart as the max-oracle of `ParseForests`."""

    def __init__(self, problem: Any, loss_augmented: bool = True) -> None:
        super().__init__(problem, loss_augmented)
        exact = problem.parser.exact
        self.certificate = "exact" if exact else "none"
        self.reason = "charts are exact" if exact else "the chart is pruned, so the best derivation may be missed"
        #: (M,): what no plane of an example exceeds at the w it was last asked at; NaN where its plane says so itself.
        self.hinge_bounds = np.full(self.n_examples, np.nan)
        # Compiled before any clock starts.
        self.planes(np.zeros(self.n_weights), np.empty(0, np.int64))

    def mean_plane(self, w: NDArray[np.float64], threads: int) -> MeanPlane:
        """The mean of the planes of largest slope at w."""
        p, hinges = self.problem, np.empty(self.n_examples)

        def sum_of(begin: int, end: int) -> tuple[NDArray[np.float64], float]:
            piece, psi = np.arange(begin, end), np.zeros(self.n_weights)
            found = self.most_violated(w, piece)
            hinges[begin:end] = np.maximum(found.bound, 0.0)
            # Otherwise the truth is at least as good, which has a plane of zeros.
            times = np.where(found.slope > 0.0, self.weight[piece], 0.0)
            p.parser.add_features(*p.truths_of(piece), p.tokens_of(piece), times * found.factor, psi)
            p.parser.add_features(found.start, found.rows, p.tokens_of(piece), -times * found.factor, psi)
            return psi, float(times @ found.ell)

        psi, ell = _add(map_shards(sum_of, self.shards, threads, pausing=True))
        return MeanPlane.of(psi / self.n_examples, ell / self.n_examples, hinges)

    def planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """The planes of largest slope at w of some examples."""
        p, some = self.problem, np.asarray(examples, np.int64)
        found = self.most_violated(w, some)
        # The truth in the place of what is worse has a plane of zeros; a tie is no reason to take it.
        worse = found.slope < 0.0
        start, rows = p.truths_of(some)
        psi = p.joint_features(start, rows, some) - p.joint_features(found.start, found.rows, some)
        psi.data *= np.repeat(np.where(worse, 0.0, found.factor), np.diff(psi.indptr))
        self.hinge_bounds[some] = np.where(found.bound > found.slope, found.bound, np.nan)
        psi.eliminate_zeros()
        return psi, np.where(worse, 0.0, found.ell)

    def most_violated(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> Found:
        """A derivation of largest loss plus score of each of the examples."""
        p, k = self.problem, 2 if self.zero_one else 1
        best = p.parser.best(p.sentences, w, k, examples, self.units)
        check_derived(best.values, examples)
        truth_start, truth = p.truths_of(examples)
        chosen, loss = np.arange(len(examples)), np.zeros(len(examples))
        if self.zero_one:
            rank = other_than_truth(best.start, best.rows, truth_start, truth)
            chosen, loss = 2 * chosen + rank, np.where(np.diff(best.start)[2 * chosen + rank] > 0, p.scale, 0.0)
        elif self.loss_augmented:
            loss = p.units[examples] * best.wrong[:, 0]
        start, rows = gather(best.start, best.rows, chosen)
        tokens = p.tokens_of(examples)
        slope = loss + p.parser.scores(w, start, rows, tokens) - p.parser.scores(w, truth_start, truth, tokens)
        slope = np.where(np.diff(start) > 0, slope, -np.inf)
        return Found(start, rows, loss, slope, np.ones(len(loss)), slope)


class ParseExpectations(_Oracle):
    """Inside-outside as the exp-oracle of `ParseForests`; exact, whatever is pruned elsewhere."""

    certificate = "exact"
    reason = "inside-outside is exact"

    def mean(self, w: NDArray[np.float64], temperature: float, threads: int = 1) -> MeanMarginals:
        """The mean of psi and ell at w, and the soft maxima; the bits do not depend on the threads."""
        p, values = self.problem, np.empty(self.n_examples)
        scale = p.scale if self.zero_one else 0.0
        if scale > _STEEP * temperature:
            raise TemperatureError(
                f"temperature={temperature!r} is too low for the zero-one loss of {scale:g}, whose soft maximum would drown in "
                f'rounding; use at least {scale / _STEEP:.3g}, or the loss "brackets".'
            )
        everyone = np.arange(self.n_examples)
        truth = p.parser.scores(w, p.truth_start, p.truth, p.tokens_of(everyone))

        def sum_of(begin: int, end: int) -> tuple[NDArray[np.float64], float]:
            piece, psi = everyone[begin:end], np.zeros(self.n_weights)
            total, wrong = p.parser.expect(
                p.sentences, w, temperature, -self.weight, psi, piece, self.units, (scale, truth)
            )
            values[begin:end] = total - truth[piece]
            times = self.weight[piece]
            losses = np.zeros(len(piece))
            if self.zero_one:
                factor = 1.0 / (1.0 - wrong * (1.0 - np.exp(-scale / temperature)))
                values[begin:end] += scale - temperature * np.log(factor)
                times, losses = times * factor, scale * factor * (1.0 - wrong)
            elif self.units is not None:
                # The chart's score leaves out what is the same for all derivations.
                values[begin:end] += p.units[piece] * np.diff(p.sentences.gold_start)[piece]
                losses = p.units[piece] * wrong
            p.parser.add_features(*p.truths_of(piece), p.tokens_of(piece), times, psi)
            return psi, float(self.weight[piece] @ losses)

        psi, ell = _add(map_shards(sum_of, self.shards, threads, pausing=True))
        return MeanMarginals(psi / self.n_examples, ell / self.n_examples, values)


def check_derived(values: NDArray[np.float64], examples: NDArray[np.int64]) -> None:
    """Refuse weights at which a sentence has no derivation."""
    missing = np.flatnonzero(~np.isfinite(values[:, 0]))
    if len(missing):
        raise DataError(
            f"Example {examples[missing[0]]}: no derivation has a finite score; weights must be finite numbers."
        )


def _add(parts: list[tuple[NDArray[np.float64], float]]) -> tuple[NDArray[np.float64], float]:
    """The sum of the shards' sums, in their order."""
    psi, ell = parts[0]
    for more, loss in parts[1:]:
        psi += more
        ell += loss
    return psi, ell


def gather(start: NDArray[np.int64], rows: Any, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
    """The pieces rows[start[m]:start[m + 1]] of the chosen m, one after the other, and where they begin."""
    sizes = np.diff(start)[chosen]
    new = offsets(sizes)
    return new, rows.take(np.repeat(start[chosen] - new[:-1], sizes) + np.arange(int(new[-1])))


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def other_than_truth(start: Any, rows: Any, truth_start: Any, truth: Any) -> Any:
    """Of two derivations of each example, the rank of the first that is not the truth.

    Rules and splits say all of a derivation.
    """
    out = np.zeros(len(truth_start) - 1, np.int64)
    for m in range(len(out)):
        n = start[2 * m + 1] - start[2 * m]
        same = n == truth_start[m + 1] - truth_start[m]
        if same:
            for row in range(n):
                one, other = rows[start[2 * m] + row], truth[truth_start[m] + row]
                same &= one.rule == other.rule and one.split == other.split
        out[m] = 1 if same else 0
    return out
