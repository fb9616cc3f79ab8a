"""The best labeling for every number of wrong variables, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maxmargin.inference import by_count
from maxmargin.problems.chains import chain_problem
from reference.random_problems import coupled_labels, random_problem


def by_enumeration(graphs, scores, m, losses, slack):
    """The largest violation of example m, over all its labelings."""
    part = graphs.take([m])
    own = type(scores)(
        scores.variables[graphs.example_states[m] : graphs.example_states[m + 1]],
        scores.factors[graphs.example_tables[m] : graphs.example_tables[m + 1]],
    )
    sizes = np.diff(np.append(part.state_starts(), part.example_states[-1]))
    truth, best = part.labeling_scores(own, part.labels)[0], 0.0
    for labels in itertools.product(*(range(n) for n in sizes)):
        score = part.labeling_scores(own, np.array(labels, np.int32))[0]
        loss = losses[int((np.array(labels) != part.labels).sum())]
        if loss > 0 and np.isfinite(score):
            best = max(best, loss * (1 + score - truth) if slack else loss + score - truth)
    return best


@pytest.mark.parametrize("slack", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_forests(seed, slack):
    rng = np.random.default_rng(seed)
    graphs = random_problem(rng, kind="forest", n_examples=6, forbidden=seed % 3 == 0, max_arity=2)
    assert by_count.refusal(graphs) is None
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    n = int(graphs.arrays.largest.variables)
    for table in (np.arange(n + 1) / 3.0, np.minimum(np.arange(n + 1), 1.0), np.sqrt(np.arange(n + 1))):
        losses = np.tile(table, (graphs.n_examples, 1))
        labels, values = by_count.most_violated(graphs, scores, losses, slack)
        expected = [by_enumeration(graphs, scores, m, table, slack) for m in range(graphs.n_examples)]
        np.testing.assert_allclose(values, expected, atol=1e-10)
        # The labelings are those of the values.
        wrong = np.add.reduceat(labels != graphs.labels, graphs.example_variables[:-1])
        behind = graphs.labeling_scores(scores, labels) - graphs.labeling_scores(scores, graphs.labels)
        own = table[wrong] * (1 + behind) if slack else table[wrong] + behind
        np.testing.assert_allclose(np.where(wrong > 0, own, 0.0), values, atol=1e-10)


def test_what_is_refused():
    assert "trees" in by_count.refusal(coupled_labels(0))
    X, y = [np.ones((30_000, 1))], [np.zeros(30_000, int)]
    assert "bytes" in by_count.refusal(chain_problem(X, y, 3))
