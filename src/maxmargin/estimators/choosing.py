"""Choosing C: ``C="auto"``, or the best of a list.

No constant is a good C for all data: it multiplies a loss, in units of that loss, against squared weights, in units of one over the
features. The scale of a problem is

    unit = n * loss / size

with n examples, the mean loss of the worst labeling (the value of the objective at w = 0) and the mean, over examples, of the
squared norms of the feature rows of all its variables and factors. Good values are found from a tenth of it to some thousand
times it. A part of the examples is held out, and the others are trained on for C = unit, unit * 10^(1/2), and so on, each run
from where the one before ended, to a coarse tolerance and for a few passes. The path ends when the task loss of the predictions
for the held-out part has been above its best value twice, or is 0. Where the first value was the best, smaller ones are tried, too.
The best C is that of least loss. Then all the data is trained on, from the point that the path had at this C. With little data,
every example is held out once, in folds, and the best C is that of least loss as a mean over it and its neighbours.

Of a list (``C=[0.1, 1, 10]``) all values are tried, from small to large and each from the one before, to the tolerance and with the
passes that the estimator has, and that of least loss is chosen; of several the smallest. ``cv`` is the number of folds, for a list
and for "auto": Finley and Joachims (2008), section 6, choose one of 14 values in 10 folds.

Held-out examples are examples of weight 0, so that all runs are on one problem, and states (planes, marginals) of the path are
good for the last run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin import jit
from maxmargin.errors import OptionError
from maxmargin.inference import Engine
from maxmargin.measures import MeasureProblem
from maxmargin.problems import FactorGraphs
from maxmargin.problems.conditionals import fit_temperature
from maxmargin.solvers.core.result import Result, Status
from maxmargin.solvers.core.sampling import seed_of
from maxmargin.solvers.oracles.prediction import predict

#: Exponents of 10 of the path, in units of the problem's scale: where it begins, the step, where it ends, and how far it goes
#: below where it began if that was the best.
_FIRST, _STEP, _LAST, _LEAST = 0.0, 0.5, 3.5, -2.5
#: Fewer examples than this are too few to hold some out; then C is the scale times this power of 10.
FEW, RULE = 20, 1.0
#: Passes over the data for each value: at least so many, and as many as make so many visits of variables, but at most so many.
_PASSES, _VISITS, _MOST_PASSES = 10, 50_000, 300
#: Tolerance for each value, as a share of the loss at w = 0.
_TOL = 0.02
#: Examples by which a temperature is fitted, at most.
SOME = 2000
#: Values above the best that end the path.
_RISES = 2
#: With fewer variables in all than this, every example is held out once: on halves of digits, 898 rows, one held-out fifth chose
#: values of C that were wrong by half a point more, as a mean over six halves.
_LITTLE = 2000
#: What the random numbers of the held-out part are drawn for.
_PURPOSE = 78
#: Share of `max_seconds` that the path may take.
_SHARE = 0.5


class Candidate(NamedTuple):
    """One value of the path: the held-out task loss, and the run it comes from."""

    C: float
    loss: float
    gap: float
    n_passes: int
    seconds: float
    #: Of the loss, from its spread over the folds; None where there is one part.
    standard_error: float | None = None


@dataclass
class Choice:
    """The value chosen, why, the path, and the state of the solver there."""

    C: float
    reason: str
    path: list[Candidate] = field(default_factory=list)
    state: Any = None
    #: The temperature that fits the scores of the held-out examples; None if it is not known.
    temperature: float | None = None
    #: The run at C if the path was interrupted: there will be no other.
    interrupted: Result | None = None


def scale_of(problem: Any) -> tuple[float, float]:
    """The scale of C on this data for one example, loss / size; and the loss."""
    if not isinstance(problem, FactorGraphs):
        loss, size = problem.scale_of_loss_and_features()
    else:
        a, batch = problem.arrays, problem.batch
        worst = problem.worst_losses()
        total = float(a.weight.sum())
        loss = float(a.weight @ worst) / total
        size = 0.0
        for side, ends in ((batch.variables, problem.example_variables), (batch.factors, problem.example_factors)):
            norms = np.asarray(side.features.squared_norms)
            if len(norms) == problem.n_examples:
                norms = norms * a.weight
            if len(norms) and ends[-1]:
                size += float(norms.mean()) * float(a.weight @ np.diff(ends)) / total
    return (loss / size if size > 0.0 and loss > 0.0 else 1.0), max(loss, 1e-300)


def held_out(
    problem: Any, fraction: float, random_state: Any, n_folds: int | None = None, few: int = FEW
) -> list[NDArray[np.int64]]:
    """Numbers of the examples to hold out: one part, or, where there is little data, parts that are all examples together.

    No part at all if there are fewer than `few` examples. Where examples have one variable, a part has its share of every class.
    Elsewhere an example with a label that appears nowhere else is never held out. `n_folds` is the number of parts, if it is given.
    """
    graphs, weight = isinstance(problem, FactorGraphs), _weights(problem)
    live = np.flatnonzero(weight > 0.0)
    if n_folds is not None and len(live) < n_folds:
        raise OptionError(
            f"cv={n_folds} is not possible: there are {len(live)} examples with a weight, fewer than folds."
        )
    if n_folds is None and len(live) < few:
        return []
    order = np.random.default_rng([seed_of(random_state), _PURPOSE]).permutation(live)
    n_variables = np.diff(problem.example_variables) if graphs else np.ones(len(weight), np.int64)
    n_parts = max(2, round(1.0 / fraction)) if n_variables[live].sum() < _LITTLE else 1
    n_parts = min(n_parts, len(live)) if n_folds is None else n_folds
    place = np.arange(len(order))
    classes = getattr(problem, "kinds", None)
    if graphs and (n_variables == 1).all():
        classes = problem.labels
    if classes is not None:
        # Class by class, so that neighbours in this order are alike.
        place[np.argsort(classes[order], kind="stable")] = np.arange(len(order))
    if n_parts > 1:
        part = place % n_parts
    else:
        part = np.where(np.floor((place + 1) * fraction) > np.floor(place * fraction), 0, 1)
    chosen = [np.sort(order[part == k]) for k in range(n_parts)]
    kinds = _kinds(problem) if graphs else classes
    if kinds is not None:
        owner = np.repeat(np.arange(len(weight)), n_variables)
        chosen = [one[~np.isin(one, _alone(owner, kinds, one, weight))] for one in chosen]
    return [one for one in chosen if len(one)]


def _weights(problem: Any) -> NDArray[np.float64]:
    """The weights of what can be held out."""
    weight: NDArray[np.float64] = problem.arrays.weight if isinstance(problem, FactorGraphs) else problem.weight
    return weight


def _alone(
    owner: NDArray[np.int64], kinds: NDArray[np.int64], chosen: NDArray[np.int64], weight: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Those of the chosen examples with a label that none of the others has."""
    taken = np.isin(owner, chosen)
    left = np.bincount(kinds[~taken & (weight[owner] > 0.0)], minlength=int(kinds.max()) + 1)
    return np.unique(owner[taken & (left[kinds] == 0)])


def _kinds(problem: FactorGraphs) -> NDArray[np.int64]:
    """For each variable, a number for its template and its label."""
    a = problem.arrays
    n = np.diff(problem.example_variables)
    first = a.structures.variables[problem.structure_of] - problem.example_variables[:-1]
    templates = a.variables.template[np.repeat(first, n) + np.arange(len(a.labels))].astype(np.int64)
    return np.asarray(templates * (int(a.labels.max()) + 1) + a.labels)


def held_out_loss(
    problem: Any, examples: NDArray[np.int64], engine: Engine | None, n_jobs: int | None
) -> Callable[[NDArray[np.float64]], float]:
    """The mean task loss of predictions for some examples, as a function of the weights."""
    if isinstance(problem, MeasureProblem):
        return lambda w: problem.loss_of(examples, w)
    if isinstance(problem, FactorGraphs):
        part = problem.take(examples)
        weight = part.arrays.weight

        def losses(w: NDArray[np.float64]) -> NDArray[np.float64]:
            assert engine is not None
            found = predict(part, w, engine, n_jobs)
            lost = part.labeling_losses(found.labels)
            if getattr(engine, "rounding", None) != "fraction" or found.ambiguous is None or found.labels.max() > 1:
                return lost
            # An open label counts one half, as it does in `score`.
            return 0.5 * (lost + part.labeling_losses(np.where(found.ambiguous, 1 - found.labels, found.labels)))
    else:
        weight = problem.weight[examples]

        def losses(w: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(problem.prediction_losses(w, examples))

    return lambda w: float(weight @ losses(w)) / float(weight.sum())


def choose_C(estimator: Any, solver: Any, problem: Any, engine: Engine | None, state: Any, monitor: Any) -> Choice:
    """Find C by a path on part of the data; estimators with ``C="auto"``, or with a list, do so before they train.

    Parameters
    ----------
    estimator : estimator
        Its ``C``, ``tol``, ``max_passes``, ``max_seconds``, ``validation_fraction``, ``cv``, ``random_state`` and ``n_jobs`` count.
    solver : Solver
    problem : FactorGraphs, ParseForests or PythonProblem
    engine : Engine
        How to predict; for factor graphs.
    state : State or None
        Where the path begins.
    monitor : Monitor or None
    """
    given = None if isinstance(estimator.C, str) else sorted({float(C) for C in estimator.C})
    unit, loss = scale_of(problem)
    if isinstance(problem, FactorGraphs) and problem.without_matrix:
        why = "the matrix of a kernel is not held, and held-out rows cannot be scored"
        if given is not None or estimator.cv is not None:
            raise OptionError(f"C cannot be chosen in folds, or from a list: {why}; give one C, or n_basis=500 or so.")
        C = rounded(unit * problem.n_examples * 10.0**RULE)
        return Choice(C, f"by the scale of the data, since {why}")
    fraction, few = float(estimator.validation_fraction), FEW if given is None else 2
    parts = held_out(problem, fraction, estimator.random_state, estimator.cv, few)
    if not parts and given is not None:
        raise OptionError(
            "C cannot be chosen from a list: no example can be held out, since each is alone, or has a label that no other has; "
            "give one C."
        )
    if not parts:
        C = rounded(unit * (1 if isinstance(problem, MeasureProblem) else FEW) * 10.0**RULE)
        return Choice(C, f"by the scale of the data, since fewer than {FEW} examples are too few to hold some out")
    path = _Path(estimator, solver, problem, engine, parts, state, monitor)
    if given is not None:
        return path.try_all(given)
    path.tol = max(float(estimator.tol), _TOL * loss)
    path.passes = min(path.passes, path.enough_passes(problem))
    unit *= path.n_trained
    path.walk(unit, np.arange(_FIRST, _LAST + _STEP, _STEP))
    if path.path[0].loss <= path.best:
        path.walk(unit, np.arange(_FIRST - _STEP, _LEAST - _STEP, -_STEP))
    return path.choice()


class _Path:
    """Runs with parts of the examples held out, for one C after the other."""

    def __init__(
        self, estimator: Any, solver: Any, problem: Any, engine: Engine | None, parts: list[NDArray[np.int64]], state: Any,
        monitor: Any,
    ) -> None:  # fmt: skip
        self.estimator, self.solver, self.monitor = estimator, solver, monitor
        weight = _weights(problem)
        self.parts = []
        self.held = problem.take(parts[-1][:SOME]) if isinstance(problem, FactorGraphs) else None
        for held in parts:
            left = weight.copy()
            left[held] = 0.0
            self.parts.append((problem.with_weights(left), held_out_loss(problem, held, engine, estimator.n_jobs)))
        self.n_examples, self.n_held = len(weight), sum(len(held) for held in parts)
        self.n_trained = int(np.count_nonzero(weight > 0.0)) - self.n_held // len(parts)
        if isinstance(problem, MeasureProblem):
            # Its loss is no mean over examples.
            self.n_trained = 1
        self.states = [state] * len(parts)
        self.tol, self.passes = float(estimator.tol), int(estimator.max_passes)
        seconds = estimator.max_seconds
        self.deadline = math.inf if seconds is None else jit.clock() + _SHARE * float(seconds)
        self.path: list[Candidate] = []
        self.best, self.interrupted = math.inf, False
        #: Whether losses are compared as means over neighbours on the path.
        self.smooth = len(parts) > 1
        self.kept: dict[float, Result] = {}

    @property
    def go_on(self) -> bool:
        """Whether there is time for another value."""
        return not self.interrupted and (not self.path or jit.clock() < self.deadline)

    def enough_passes(self, problem: Any) -> int:
        """Passes that tell one C from another."""
        n_variables = int(problem.example_variables[-1]) if isinstance(problem, FactorGraphs) else problem.n_examples
        return min(max(_PASSES, _VISITS // n_variables), _MOST_PASSES)

    def try_all(self, values: list[float]) -> Choice:
        """The best of some values, as far as there is time."""
        self.smooth = False
        for C in values:
            if not self.go_on:
                break
            self.add(C)
        return self.choice()

    def walk(self, unit: float, exponents: NDArray[np.float64]) -> None:
        """Go on to other values of C until the loss has been above its best for some time."""
        rises = 0
        for k in exponents.tolist():
            if not self.go_on:
                return
            before = self.best
            found = self.add(rounded(unit * 10.0**k))
            rises = 0 if found < before else rises + (found > before)
            if rises >= _RISES or found == 0.0:
                return

    def add(self, C: float) -> float:
        """Train for C, from where the run before ended; returns the held-out loss."""
        e, started = self.estimator, jit.clock()
        losses, gaps, passes = [], [], []
        for at, (problem, loss_of) in enumerate(self.parts):
            left = self.deadline - jit.clock()
            result: Result = self.solver.solve(
                problem, C=C, tol=self.tol, max_passes=self.passes,
                max_seconds=None if math.isinf(left) else max(left, 1e-3), random_state=e.random_state, n_jobs=e.n_jobs,
                monitor=self.monitor, state=self.states[at],
            )  # fmt: skip
            self.states[at] = result.state
            losses.append(loss_of(result.weights))
            gaps.append(result.gap)
            passes.append(result.n_passes)
            if result.status is Status.INTERRUPTED:
                self.interrupted = True
                break
        found = float(np.mean(losses))
        error = float(np.std(losses, ddof=1)) / math.sqrt(len(losses)) if len(losses) > 1 else None
        self.path.append(Candidate(C, found, float(np.mean(gaps)), sum(passes), jit.clock() - started, error))
        self.best = min(self.best, found)
        self.path.sort()
        # States take memory. The loss around a value is known when it has two neighbours; until then it may become the best.
        self.kept[C] = result
        around = self.around()
        useful = [self.path[0].C, self.path[-1].C]
        if len(self.path) > 2:
            useful.append(self.path[1 + int(np.argmin(around[1:-1]))].C)
        self.kept = {one: kept for one, kept in self.kept.items() if one in useful}
        return found

    def around(self) -> NDArray[np.float64]:
        """The loss of each value; with little data, and half of those of its neighbours: losses of few examples are not smooth."""
        losses = np.array([one.loss for one in self.path])
        if not self.smooth:
            return losses
        wider = np.concatenate([losses[:1], losses, losses[-1:]])
        return np.asarray(0.5 * wider[:-2] + losses + 0.5 * wider[2:])

    def choice(self) -> Choice:
        """The value chosen, and where its run ended."""
        chosen = self.path[int(np.argmin(self.around()))]
        C, loss, error = chosen.C, f"{chosen.loss:.4g}", chosen.standard_error
        if error is not None:
            loss += f" with a standard error of {error:.2g}"
        of = f"{self.n_held} of {self.n_examples} examples" if len(self.parts) == 1 else f"{len(self.parts)} folds"
        reason = f"chosen by the held-out loss ({loss} on {of}; {len(self.path)} values tried)"
        kept = self.kept.get(C)
        choice = Choice(C, reason, self.path, kept.state if kept else None)
        if self.held is not None and kept is not None:
            choice.temperature = fit_temperature(self.held, self.held.scores(kept.weights))
        if self.interrupted:
            result = kept or next(reversed(self.kept.values()))
            result.dual, result.gap, result.certificate = -math.inf, math.inf, "none"
            result.status = Status.INTERRUPTED
            result.message = (
                "Interrupted while C was being chosen: the weights are of a run without the held-out examples."
            )
            choice.interrupted = result
        return choice


def rounded(C: float) -> float:
    """C to 3 digits, which people can write down."""
    return float(f"{C:.3g}")
