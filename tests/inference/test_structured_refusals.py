"""Engines that only know tables say so when they meet a structured factor."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.errors import MaxMarginError
from maxmargin.inference import ENGINES, engine
from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.problems.factor_graphs import Scores
from maxmargin.problems.structured import at_most


def budget(n=4, k=2):
    one = Features.constant()
    structure = Structure([0] * n, [0] * n, [0], [0], [tuple(range(n))])
    return FactorGraphs([structure], [0], [Template([0, 1])], [at_most(n, k)], one, one, [0], [0])


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_structured_factors_are_answered_or_refused(name):
    graphs = budget()
    scores = Scores(np.array([0.0, 3.0, 0.0, 2.0, 0.0, 1.0, 0.0, -1.0]), graphs.scores(np.zeros(2)).factors)
    chosen = engine(name)
    if chosen.refusal(graphs) is None:
        found = chosen.maximise(graphs, scores)
        np.testing.assert_array_equal(found.labels, [1, 1, 0, 0])
        assert name in ("dual_decomposition", "exhaustive")
    else:
        assert "factor 0" in chosen.refusal(graphs)
        with pytest.raises(MaxMarginError, match="factor 0"):
            chosen.maximise(graphs, scores)
