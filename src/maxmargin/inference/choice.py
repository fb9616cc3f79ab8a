"""Which engine to use when the user leaves it open: exact where exact is cheap, else the best relaxation.

Binary pairs whose weights have signs that make all of them attract go to `graph_cut`, which is then exact. Otherwise, for
prediction (`choose`):

1. graphs without cycles: `trees`;
2. few labelings an example: `exhaustive`;
3. a small induced width: `junction_tree`;
4. binary variables in pairs: `graph_cut`, which is exact if all pairs are supermodular, or wherever it leaves nothing open;
5. anything else: `dual_decomposition`, which is exact wherever its bound is met.

For the oracle of a solver (`choose_oracle`), which is asked so often that time counts for more, and whose relaxation has a
certificate of its own, binary pairs go to `graph_cut` before anything but `trees`. For marginals (`choose_marginals`) the exact
engines come first, too, and then `loopy_bp`; for the k best labelings (`choose_top_k`) the exact engines, then
`branch_and_bound`, and no other.
"""

from __future__ import annotations

import numpy as np

from maxmargin.errors import DataError
from maxmargin.inference.branch_and_bound import BranchAndBound
from maxmargin.inference.contract import Engine
from maxmargin.inference.dual_decomposition import DualDecomposition
from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.inference.junction_tree import JunctionTree
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.inference.trees import Trees
from maxmargin.problems.attractive import is_attractive
from maxmargin.problems.factor_graphs import FactorGraphs

#: Labelings, and entries of clique tables, of an example for which exactness counts as cheap; and cliques that take at most so
#: many times the room of the score tables themselves, as those of a chain with factors over three tags.
CHEAP_LABELINGS, CHEAP_ENTRIES, CHEAP_RATIO = 2**10, 2**15, 4
#: Variables of an example above which an elimination order is looked for only if there are few cycles, at most this share of the
#: variables: for a picture of 500 x 500 pixels it takes half a minute to find that there is no good one.
LARGE, FEW_CYCLES = 10_000, 0.01
#: Variables of an example up to which the k best labelings are searched for by branch and bound, one search for each of them.
SEARCHED = 1000


#: Why a cut needs no rounding.
ATTRACTIVE = "all pairs of binary variables attract, by the signs of their weights, so that a graph cut is exact"


def is_exact(engine: Engine, graphs: FactorGraphs) -> bool:
    """Whether an engine is exact on a batch: because it always is, or because it is a graph cut of attractive pairs.

    Parameters
    ----------
    engine : Engine
    graphs : FactorGraphs
        The batch; with signs of its weights, which all weights that are asked about must have.
    """
    return engine.exact or (engine.name == GraphCut.name and is_attractive(graphs))


def choose(graphs: FactorGraphs) -> tuple[Engine, str]:
    """The engine that predicts, and why.

    Parameters
    ----------
    graphs : FactorGraphs
        The batch.
    """
    cut = GraphCut()
    if is_attractive(graphs) and not graphs.is_forest and cut.refusal(graphs) is None:
        return cut, ATTRACTIVE
    exact = exact_engine(graphs)
    if exact is not None:
        return exact
    if cut.refusal(graphs) is None:
        return cut, "binary variables in pairs: a relaxation that is often exact"
    return DualDecomposition(), "no cheap exact engine: a bound, and the best labeling found"


def choose_oracle(graphs: FactorGraphs) -> tuple[Engine, str]:
    """The engine that a solver asks, and why.

    Parameters
    ----------
    graphs : FactorGraphs
        The batch.
    """
    cut = GraphCut()
    if not graphs.is_forest and cut.refusal(graphs) is None:
        return cut, ATTRACTIVE if is_attractive(graphs) else "binary variables in pairs: the relaxation by a graph cut"
    exact = exact_engine(graphs)
    if exact is not None:
        return exact
    return DualDecomposition(max_rounds=30, smoothing=0), "no cheap exact engine: labelings and bounds"


def choose_marginals(graphs: FactorGraphs) -> tuple[Engine, str]:
    """The engine for marginals, and why: exact where that is cheap, else loopy sum-product.

    Parameters
    ----------
    graphs : FactorGraphs
        The batch.
    """
    exact = exact_engine(graphs)
    return exact if exact is not None else (LoopyBP(), "no cheap exact engine")


def choose_top_k(graphs: FactorGraphs) -> tuple[Engine, str]:
    """The engine that finds the best labelings one after another on graphs with cycles, and why; refuses where none is exact.

    Parameters
    ----------
    graphs : FactorGraphs
        The batch.
    """
    exact = exact_engine(graphs)
    if exact is not None:
        return exact
    search = BranchAndBound()
    n = np.diff(graphs.example_variables)
    if search.refusal(graphs) is None and n.max() <= SEARCHED:
        return search, "binary variables in pairs: a search, which may take long where pairs disagree"
    m = int(n.argmax())
    raise DataError(
        "The k best labelings, and so the margin to the second best, are known only where inference is exact, and no exact engine "
        f"is cheap on these graphs; the largest is example {graphs.number_of(m)}, of {n[m]} variables. Probabilities "
        "(predict_proba) say how sure its labels are."
    )


def exact_engine(graphs: FactorGraphs) -> tuple[Engine, str] | None:
    """An engine that is exact on this batch and cheap, and why; None if there is none."""
    if Trees().refusal(graphs) is None:
        return Trees(), "no graph has a cycle"
    if Exhaustive(CHEAP_LABELINGS).refusal(graphs) is None:
        return Exhaustive(CHEAP_LABELINGS), f"no example has more than {CHEAP_LABELINGS} labelings"
    if _many_cycles(graphs):
        return None
    own = int((np.diff(graphs.example_states) + np.diff(graphs.example_tables)).max())
    tree = JunctionTree(max(CHEAP_ENTRIES, CHEAP_RATIO * own))
    if tree.refusal(graphs) is None:
        return tree, f"the induced width is small, {int(np.max(tree.width(graphs)))}"
    return None


def _many_cycles(graphs: FactorGraphs) -> bool:
    """Whether a large example has so many cycles that no small width is to be hoped for."""
    for s in np.unique(graphs.structure_of):
        structure = graphs.structures[s]
        n = len(structure.variable_templates)
        # Each factor could join `arity` parts into one; what it does beyond closes cycles.
        if n > LARGE and structure.arity.sum() - len(structure.arity) - n > FEW_CYCLES * n:
            return True
    return False
