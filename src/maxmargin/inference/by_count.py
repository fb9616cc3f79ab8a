"""The best labeling for every number of wrong variables, on forests: max-product over states and numbers.

X. Zhang, A. Saha and S. V. N. Vishwanathan, Accelerated Training of Max-Margin Markov Networks with Kernels, ALT 2011, section 5,
point to it for losses that do not fall apart into factors. With ``up_i(y_i, n)`` the best score of what variable i has heard, of
which n variables differ from the truth, a factor of a parent p and a child j sends

    m(y_p, n)     = max_{y_j}  scores_c(y_p, y_j) + up_j(y_j, n)
    up_p(y_p, n) <- max_{a + b = n}  up_p(y_p, a) + m(y_p, b)

along the schedule of `trees`; roots are joined in the same way. The best score S(n) of the whole example for each n then has the
most violated labeling of any loss L(n) that is a function of the number of wrong variables:

    margin rescaling    max_n  L(n) + S(n) - S(0)
    slack rescaling     max_n  L(n) (1 + S(n) - S(0))

Chains of n variables take O(n^2 K^2) operations, n times those of `trees`, and n^2 K numbers of memory. Numbers from some N on can
be one, if the loss does not tell them apart: N = 1 for the loss "zero-one", where both rescalings are the same, takes O(n K^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.inference.contract import check_numbers
from maxmargin.inference.trees import schedule
from maxmargin.jit import Struct, inner, kernel
from maxmargin.problems.factor_graphs import FactorGraphs, Scores
from maxmargin.problems.layout import Largest

#: Bytes that the tables of one example may take.
MOST_BYTES = 1 << 30


class CountRoom(Struct):
    """Room for the tables of one example: numbers of wrong variables up to N in columns."""

    #: (states, N + 1): the best scores by state and number; and how many variables each variable has heard of.
    up: NDArray[np.float64]
    size: NDArray[np.int64]
    #: (messages, N + 1): for a state of a parent, the child's state by the child's number, and, by the parent's new number, the
    #: child's number times N + 1 and the parent's old one.
    child: NDArray[np.int32]
    share: NDArray[np.int32]
    #: (n, N + 1): for a root, its state by its number, and, by the number of the roots up to it, its own times N + 1 and the rest.
    root_state: NDArray[np.int32]
    root_share: NDArray[np.int32]
    #: (N + 1,): what is sent, room for what is joined, and the whole example.
    sent: NDArray[np.float64]
    joined: NDArray[np.float64]
    whole: NDArray[np.float64]
    #: (n,): the number that is left to each variable on the way back.
    left: NDArray[np.int64]

    @classmethod
    def of(cls, largest: Largest, width: int) -> CountRoom:
        """Room for the largest example, and for N + 1 = `width` numbers."""
        n, states, messages = int(largest.variables), int(largest.states), int(largest.deltas)
        return cls(
            np.empty((states, width)), np.empty(n, np.int64), np.empty((messages, width), np.int32),
            np.empty((messages, width), np.int32), np.empty((n, width), np.int32), np.empty((n, width), np.int32),
            np.empty(width), np.empty(width), np.empty(width), np.empty(n, np.int64),
        )  # fmt: skip


def refusal(graphs: FactorGraphs, most: int | None = None) -> str | None:
    """Why these graphs cannot be searched by number, up to some number or to that of all variables, or None."""
    if graphs.has_structured or not graphs.is_forest:
        return "not all graphs are trees of factors with tables"
    if any(template.arity > 2 for template in graphs.factor_templates):
        return "some factors have more than two variables"
    largest = graphs.arrays.largest
    width = 1 + (int(largest.variables) if most is None else most)
    if (8 * int(largest.states) + 8 * int(largest.deltas)) * width > MOST_BYTES:
        return f"tables by the number of wrong variables take more than {MOST_BYTES} bytes"
    return None


def most_violated(
    graphs: FactorGraphs, scores: Scores, losses: NDArray[np.float64], slack: bool
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The most violated labeling (V,) of every example, and its violation (M,), which is at least that of the truth, 0.

    Parameters
    ----------
    graphs : FactorGraphs
        With labels, and without a `refusal`.
    scores : Scores
        Without the loss.
    losses : array (M, N + 1)
        The loss of each number of wrong variables, the last for that number and all above it.
    slack : bool
        Slack rescaling, in the place of margin rescaling.
    """
    scores, a = check_numbers(graphs, scores), graphs.arrays
    labels, values = a.labels.copy(), np.zeros(graphs.n_examples)
    truth = graphs.labeling_scores(scores, a.labels)
    room = CountRoom.of(a.largest, losses.shape[1])
    search(
        a.examples, schedule(graphs), room, scores.variables, scores.factors, a.labels, truth, losses, slack,
        labels, values,
    )  # fmt: skip
    return labels, values


# ------------------------------------------------------------------------------------------------------- kernels


@kernel
def search(
    examples: Any, plan: Any, room: Any, v_scores: Any, f_scores: Any, own: Any, truth: Any, losses: Any, slack: bool,
    labels: Any, values: Any,
) -> None:  # fmt: skip
    """Labelings and violations of all examples."""
    for m in range(len(examples) - 1):
        s, first, n = (
            examples[m].structure,
            examples[m].variables,
            examples[m + 1].variables - examples[m].variables,
        )
        _begin(plan, room, s, v_scores, examples[m].states, own, first)
        for q in range(plan.first_step[s], plan.first_step[s + 1]):
            _send(plan, room, q, f_scores, examples[m].tables)
        _join_roots(plan, room, s)
        best = 0
        for number in range(1, min(n, losses.shape[1] - 1) + 1):
            if room.whole[number] > -np.inf:
                behind, loss = room.whole[number] - truth[m], losses[m, number]
                value = loss * (1.0 + behind) if slack else loss + behind
                if value > values[m]:
                    values[m], best = value, number
        if best > 0:
            _read_labels(plan, room, s, best, labels, first)


@inner
def _begin(plan: Any, room: Any, s: int, v_scores: Any, at: int, own: Any, first: int) -> None:
    """The variables' own scores: with number 0 for the true state, with number 1 for the others."""
    up, size = room.up, room.size
    ends, roots = plan.ends, plan.roots
    for r in range(plan.first_root[s], plan.first_root[s + 1]):
        _begin_one(up, v_scores, at, roots[r].state, roots[r].states, own[first + roots[r].variable])
        size[roots[r].variable] = 1
    for q in range(plan.first_step[s], plan.first_step[s + 1]):
        for e in range(plan.steps[q].parent + 1, plan.steps[q].end):
            _begin_one(up, v_scores, at, ends[e].state, ends[e].states, own[first + ends[e].variable])
            size[ends[e].variable] = 1


@inner
def _begin_one(up: Any, v_scores: Any, at: int, state: int, states: int, truth: int) -> None:
    for x in range(states):
        wrong = x != truth
        up[state + x, 0] = -np.inf if wrong else v_scores[at + state + x]
        up[state + x, 1] = v_scores[at + state + x] if wrong else -np.inf


@inner
def _send(plan: Any, room: Any, q: int, f_scores: Any, f_at: int) -> None:
    """Tell the parent of step q what its child has heard."""
    step, ends, up, size, sent = plan.steps[q], plan.ends, room.up, room.size, room.sent
    at, p, c = f_at + step.table, step.parent, step.parent + 1
    to, n, stride = ends[p].state, ends[p].states, ends[p].stride
    heard = size[ends[p].variable]
    if step.end == c:
        for x in range(n):
            for number in range(heard + 1):
                up[to + x, number] += f_scores[at + x * stride]
        return
    below = size[ends[c].variable]
    for x in range(n):
        child = room.child[step.message + x]
        for number in range(below + 1):
            sent[number] = -np.inf
        for y in range(ends[c].states):
            score, of_child = f_scores[at + x * stride + y * ends[c].stride], up[ends[c].state + y]
            for number in range(below + 1):
                if score + of_child[number] > sent[number]:
                    sent[number], child[number] = score + of_child[number], y
        _join(up[to + x], heard, sent, below, room.joined, room.share[step.message + x])
    size[ends[p].variable] = min(heard + below, len(sent) - 1)


@inner
def _join(here: Any, heard: int, sent: Any, below: int, joined: Any, share: Any) -> None:
    """Join what is sent, of `below` variables, with scores of `heard` variables; `share` is the numbers of both."""
    most = len(joined) - 1
    for number in range(min(heard + below, most) + 1):
        joined[number] = -np.inf
    for b in range(below + 1):
        if sent[b] > -np.inf:
            for a in range(heard + 1):
                number = min(a + b, most)
                if here[a] + sent[b] > joined[number]:
                    joined[number], share[number] = here[a] + sent[b], b * (most + 1) + a
    for number in range(min(heard + below, most) + 1):
        here[number] = joined[number]


@inner
def _join_roots(plan: Any, room: Any, s: int) -> None:
    """The scores of the whole example, a root at a time."""
    roots, up, size, sent, whole, r0 = plan.roots, room.up, room.size, room.sent, room.whole, plan.first_root[s]
    whole[0], total = 0.0, 0
    for r in range(r0, plan.first_root[s + 1]):
        n, state = size[roots[r].variable], room.root_state[r - r0]
        for number in range(n + 1):
            sent[number] = -np.inf
            for x in range(roots[r].states):
                if up[roots[r].state + x, number] > sent[number]:
                    sent[number], state[number] = up[roots[r].state + x, number], x
        _join(whole, total, sent, n, room.joined, room.root_share[r - r0])
        total = min(total + n, len(sent) - 1)


@inner
def _read_labels(plan: Any, room: Any, s: int, number: int, labels: Any, first: int) -> None:
    """Write the labeling with a number of wrong variables into labels[first:], from the roots to the leaves."""
    steps, ends, roots, left, r0 = plan.steps, plan.ends, plan.roots, room.left, plan.first_root[s]
    width = len(room.sent)
    for r in range(plan.first_root[s + 1] - 1, r0 - 1, -1):
        share, number = divmod(room.root_share[r - r0, number], width)
        left[roots[r].variable], labels[first + roots[r].variable] = share, room.root_state[r - r0, share]
    for q in range(plan.first_step[s + 1] - 1, plan.first_step[s] - 1, -1):
        p, c = steps[q].parent, steps[q].parent + 1
        if steps[q].end > c:
            row = steps[q].message + labels[first + ends[p].variable]
            share, left[ends[p].variable] = divmod(room.share[row, left[ends[p].variable]], width)
            left[ends[c].variable], labels[first + ends[c].variable] = share, room.child[row, share]
