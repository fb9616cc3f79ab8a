"""Whether the signs of weights make all pairs of a batch attract, whatever the weights are: a graph cut is then exact.

A pair of binary variables is supermodular if s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0). Its score is fixed + features . weights, so
that it is so for all weights of these signs if the features are not negative, blocks of equal states have weights that are not
negative, blocks of different states weights that are not positive, and the fixed scores are supermodular themselves.
"""

from __future__ import annotations

import numpy as np

from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.features import KernelFeatures
from maxmargin.problems.templates import TABLE

#: The sign of the weights of each joint state.
_WANTED = np.array([[1, -1], [-1, 1]])


def is_attractive(graphs: FactorGraphs) -> bool:
    """Whether all factors of two binary variables are supermodular for all weights of the batch's signs, and none has more.

    Parameters
    ----------
    graphs : FactorGraphs
        The batch, with signs (`FactorGraphs.with_signs`).
    """
    if graphs.signs is None or isinstance(graphs.factor_features, KernelFeatures) or len(graphs.arrays.factor_scores):
        return False
    pairs = [template for template in graphs.factor_templates if template.arity > 1]
    if any(template.kind != TABLE or template.n_states != (2, 2) for template in pairs):
        return False
    if not pairs or graphs.factor_features.matrix().min() < 0:
        return False
    of_blocks = graphs.split_weights(graphs.signs.astype(np.float64))[1]
    sign = np.where((of_blocks == 1).all(axis=1), 1, np.where((of_blocks == -1).all(axis=1), -1, 0))
    for template in pairs:
        kept, fixed = np.where(template.blocks >= 0, sign[template.blocks], _WANTED), template.scores
        if (kept != _WANTED).any() or not fixed[0, 0] + fixed[1, 1] >= fixed[0, 1] + fixed[1, 0]:
            return False
    return True
