"""decode: labelings are real, bounds hold, and both meet on forests."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.solvers.soft_decoding import decode
from reference import enumeration
from reference.random_problems import random_problem


@pytest.mark.parametrize("seed", range(40))
def test_against_enumeration(seed):
    rng = np.random.default_rng(seed)
    graphs = random_problem(
        rng,
        kind=("loopy", "forest")[seed % 2],
        n_examples=4,
        max_variables=5,
        max_states=4,
        max_arity=3,
        forbidden=seed % 4 < 2,
    )
    scores = graphs.scores(rng.normal(size=graphs.n_weights))
    _, best, _ = enumeration.maximise(graphs, scores)
    found = decode(graphs, scores, rounds=200)
    assert (found.values <= best + 1e-9).all()
    assert (found.bounds >= best - 1e-9).all()
    np.testing.assert_allclose(found.values, graphs.labeling_scores(scores, found.labels))
    certain = found.bounds - found.values <= 1e-9
    np.testing.assert_allclose(found.values[certain], best[certain], atol=1e-8)
