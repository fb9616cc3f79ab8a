"""Inference: engines that find the best labeling, or the marginals, of a batch of factor graphs.

One file an engine; `contract` says what each of them answers. An engine goes by its name (`engine("trees")`) or as
an object with options of its own (`Exhaustive(limit=1000)`).
"""

from __future__ import annotations

from collections.abc import Callable

from maxmargin.errors import OptionError, did_you_mean
from maxmargin.inference.alpha_expansion import AlphaExpansion
from maxmargin.inference.branch_and_bound import BranchAndBound
from maxmargin.inference.choice import choose, choose_marginals, choose_oracle, choose_top_k
from maxmargin.inference.combined import Combined
from maxmargin.inference.contract import Engine, MapResult, Marginals, Relaxed, TopK
from maxmargin.inference.dual_decomposition import DualDecomposition
from maxmargin.inference.excluding import top_k_of_any
from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.inference.greedy import Greedy
from maxmargin.inference.junction_tree import JunctionTree
from maxmargin.inference.linear_program import LinearProgram
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.inference.rho_approximate import RhoApproximate
from maxmargin.inference.top_k import top_k
from maxmargin.inference.trees import Trees

__all__ = [
    "ENGINES",
    "AlphaExpansion",
    "BranchAndBound",
    "Combined",
    "DualDecomposition",
    "Engine",
    "Exhaustive",
    "GraphCut",
    "Greedy",
    "JunctionTree",
    "LinearProgram",
    "LoopyBP",
    "MapResult",
    "Marginals",
    "Relaxed",
    "RhoApproximate",
    "TopK",
    "Trees",
    "choose",
    "choose_marginals",
    "choose_oracle",
    "choose_top_k",
    "engine",
    "top_k",
    "top_k_of_any",
]

#: All engines by name.
ENGINES: dict[str, Callable[[], Engine]] = {
    "alpha_expansion": AlphaExpansion,
    "branch_and_bound": BranchAndBound,
    "combined": Combined,
    "dual_decomposition": DualDecomposition,
    "exhaustive": Exhaustive,
    "graph_cut": GraphCut,
    "greedy": Greedy,
    "junction_tree": JunctionTree,
    "linear_program": LinearProgram,
    "loopy_bp": LoopyBP,
    "rho_approximate": RhoApproximate,
    "trees": Trees,
}


def engine(name_or_object: str | Engine) -> Engine:
    """Return the engine of that name, with its default options, or the given engine itself.

    Parameters
    ----------
    name_or_object : str or Engine
        A name in `ENGINES`, or an engine.
    """
    if isinstance(name_or_object, str):
        if name_or_object not in ENGINES:
            known = ", ".join(f'"{name}"' for name in sorted(ENGINES))
            raise OptionError(
                f"There is no inference engine {name_or_object!r}; known names are {known}."
                + did_you_mean(name_or_object, ENGINES)
            )
        return ENGINES[name_or_object]()
    if isinstance(name_or_object, Engine) and not isinstance(name_or_object, type):
        return name_or_object
    raise OptionError(f"{name_or_object!r} is neither the name of an inference engine nor an engine.")
