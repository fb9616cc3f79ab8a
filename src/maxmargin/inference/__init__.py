"""Inference: engines that find the best labeling, or the marginals, of a batch of factor graphs.

One file an engine; `contract` says what each of them answers. An engine goes by its name (`engine("trees")`) or as
an object with options of its own (`Exhaustive(limit=1000)`).
"""

from __future__ import annotations

from collections.abc import Callable

from maxmargin.errors import OptionError
from maxmargin.inference.combined import Combined
from maxmargin.inference.contract import Engine, MapResult, Marginals, Relaxed
from maxmargin.inference.exhaustive import Exhaustive
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.inference.greedy import Greedy
from maxmargin.inference.linear_program import LinearProgram
from maxmargin.inference.loopy_bp import LoopyBP
from maxmargin.inference.trees import Trees
from maxmargin.problems.factor_graphs import FactorGraphs

__all__ = [
    "ENGINES",
    "Combined",
    "Engine",
    "Exhaustive",
    "GraphCut",
    "Greedy",
    "LinearProgram",
    "LoopyBP",
    "MapResult",
    "Marginals",
    "Relaxed",
    "Trees",
    "engine",
    "exact_engine",
]

#: All engines by name.
ENGINES: dict[str, Callable[[], Engine]] = {
    "combined": Combined,
    "exhaustive": Exhaustive,
    "graph_cut": GraphCut,
    "greedy": Greedy,
    "linear_program": LinearProgram,
    "loopy_bp": LoopyBP,
    "trees": Trees,
}


def engine(name_or_object: str | Engine) -> Engine:
    """Return the engine of that name, with its default options, or the given engine itself."""
    if isinstance(name_or_object, str):
        if name_or_object not in ENGINES:
            known = ", ".join(f'"{name}"' for name in sorted(ENGINES))
            raise OptionError(f"There is no inference engine {name_or_object!r}; known names are {known}.")
        return ENGINES[name_or_object]()
    if isinstance(name_or_object, Engine) and not isinstance(name_or_object, type):
        return name_or_object
    raise OptionError(f"{name_or_object!r} is neither the name of an inference engine nor an engine.")


def exact_engine(graphs: FactorGraphs, limit: int = 2**12) -> Engine | None:
    """Return an engine that is exact on this batch, or None if there is no cheap one.

    Parameters
    ----------
    graphs : FactorGraphs
    limit : int
        Largest number of joint states of an example for which exhaustive search counts as cheap.
    """
    candidates: tuple[Engine, ...] = (Trees(), Exhaustive(limit))
    for candidate in candidates:
        if candidate.refusal(graphs) is None:
            return candidate
    return None
