"""The model of Finley and Joachims (ICML 2008, section 5): a weight for each label and feature, and one for each pair of labels.

The paper's count of weights has no intercepts, but some of its numbers must have: without one the model without pairs gets 41.7 %
wrong on Yeast, where the paper prints 20.91, and nothing can be learned on Synth2. There each label has an intercept here, on the
other sets none. An intercept is the weight of a constant feature: the larger the constant, the less it is regularised. The paper
does not say how much, so that the constant is chosen as C is, by folds of the training examples (`intractable-intercepts`): the
smallest of `CONSTANTS` whose loss is within one standard error of the least.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.estimators.multi_label import MultiLabelSVM
from maxmargin.experiments.data import LabelData
from maxmargin.experiments.papers.intractable_inference import ENGINES
from maxmargin.solvers import BCFW

#: The paper's 14 values, for a loss in 0..1.
VALUES_OF_C = [scale * 10.0**power for power in range(-4, 3) for scale in (1.0, 3.0)]
#: The constants to choose from, and what was chosen.
CONSTANTS = (1.0, 3.0, 10.0)
CHOSEN = {"yeast": 1.0, "synth2": 10.0, "small-synth2": 1.0}


def with_constant(data: LabelData, constant: float | None) -> LabelData:
    """The data with a column for intercepts, unless there is no constant."""
    if constant is None:
        return data
    X, X_test = (np.hstack([one, np.full((len(one), 1), constant)]) for one in map(np.asarray, (data.X, data.X_test)))
    return data._replace(X=X, X_test=X_test)


def label_model(oracle: str, edges: str, folds: int, **options: Any) -> MultiLabelSVM:
    """The model, trained with an oracle, C chosen by folds."""
    engine = ENGINES[oracle]
    settings: dict[str, Any] = {"C": VALUES_OF_C, "cv": folds, "max_passes": 20, "solver": BCFW(inference=engine)}
    settings |= {"inference": engine} | options
    return MultiLabelSVM(edges=edges, fit_intercept=False, scale=False, n_jobs=1, **settings)
