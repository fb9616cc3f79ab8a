"""A factor of one's own: recordings in which an event is on or off at each moment, and the number of events matters.

Each moment is a binary variable. Moments alone are noisy, and no table over a few of them can count the events of a whole
recording. A structured factor over all moments can: two small functions say how to find its best labeling and what it counts,
and how many points 0, 1, 2, or 3 and more events are worth is learned.

python examples/custom_factor.py
"""

import numpy as np
from numba import njit

from maxmargin.inference import DualDecomposition
from maxmargin.problems import FactorGraphs, Features, Structure, Template, custom
from maxmargin.problems.losses import variable_losses
from maxmargin.solvers import SoftBCFW

LENGTH = 30


@njit
def count_events(labels, n_states, out):
    """The statistics F: out[k] = 1 if there are k runs of state 1 (the last entry: that many or more)."""
    events = 0
    for i in range(len(labels)):
        if labels[i] == 1 and (i == 0 or labels[i - 1] == 0):
            events += 1
    out[:] = 0.0
    out[min(events, len(out) - 1)] = 1.0


@njit
def best_events(unary, params, n_states, labels):
    """The labels of largest unary + params . F, moment by moment: how many events so far, and whether one is on."""
    n, most = len(labels), len(params) - 1
    best = np.full((n, most + 1, 2), -np.inf)
    before = np.zeros(
        (n, most + 1, 2), np.int64
    )  # the number of events and the state a moment earlier, as 2 * events + state
    best[0, 0, 0], best[0, min(1, most), 1] = unary[0], unary[1]
    for i in range(1, n):
        for events in range(most + 1):
            for state in range(2):
                to = min(events + 1, most)
                for then, now in ((0, events), (1, to if state == 0 else events)):
                    value = best[i - 1, events, state] + unary[2 * i + then]
                    if value > best[i, now, then]:
                        best[i, now, then], before[i, now, then] = value, 2 * events + state
    at, value = 0, -np.inf
    for events in range(most + 1):
        for state in range(2):
            if best[n - 1, events, state] + params[events] > value:
                at, value = 2 * events + state, best[n - 1, events, state] + params[events]
    for i in range(n - 1, -1, -1):
        labels[i] = at % 2
        at = before[i, at // 2, at % 2]
    return value


def recordings(rng, n):
    """Labels with one or two events each, and two noisy features a moment."""
    labels = np.zeros((n, LENGTH), np.int32)
    for one in labels:
        for _ in range(rng.integers(1, 3)):
            first = rng.integers(LENGTH - 5)
            one[first : first + rng.integers(3, 8)] = 1
    return labels, labels.reshape(-1, 1) + rng.normal(size=(n * LENGTH, 2))


def problem(labels, features, factors):
    """A binary variable a moment; factors as (template, scopes)."""
    n = len(labels)
    kinds = [t for t, (_, scopes) in enumerate(factors) for _ in scopes]
    scopes = [scope for _, scopes in factors for scope in scopes]
    shape = Structure([0] * LENGTH, np.arange(LENGTH), kinds, [0] * len(kinds), scopes)
    return FactorGraphs(
        [shape],
        np.zeros(n, int),
        [Template([-1, 0])],
        [template for template, _ in factors],
        Features(np.hstack([features, np.ones((len(features), 1))])),
        Features.constant(),
        LENGTH * np.arange(n),
        np.zeros(n, int),
        labels.ravel(),
        variable_losses(labels.ravel(), np.full(labels.size, 2), np.full(n, LENGTH), "hamming"),
    )


rng = np.random.default_rng(0)
train, test = recordings(rng, 100), recordings(rng, 200)
everything = [tuple(range(LENGTH))]
events = custom((2,) * LENGTH, 4, best_events, count_events, blocks=np.arange(4))
neighbours = Template([[4, -1], [-1, 4]]), [(i, i + 1) for i in range(LENGTH - 1)]
truth = (np.diff(test[0], prepend=0) == 1).sum(axis=1)

for name, factors in (
    ("moments alone", []),
    ("number of events", [(events, everything)]),
    ("number of events, and neighbours agree", [(events, everything), neighbours]),
):
    result = SoftBCFW().solve(problem(*train, factors), C=100, tol=3e-3)
    to_predict = problem(*test, factors)
    found = DualDecomposition().maximise(to_predict, to_predict.scores(result.weights)).labels.reshape(-1, LENGTH)
    right = np.mean((np.diff(found, prepend=0) == 1).sum(axis=1) == truth)
    print(f"{name}: {np.mean(found != test[0]):.3f} of test moments wrong, {right:.2f} of event counts right")
    print(f"    {result.summary()}")
    if factors:
        print("    points for 0, 1, 2, more events:", to_predict.split_weights(result.weights)[1].ravel()[:4].round(2))
