"""Which solver to use when the user leaves it open (``solver="auto"``), and why; the result says both.

`bcfw` chooses its oracle by the same rules (inference/choice.py).

Weights that have signs: `one-slack`, or `bundle` for the smooth objectives; no other solver keeps them.

0. The zero-one loss: `bcfw`, whose oracle finds the best labeling that is not the truth.
1. No factors (binary and multi-class problems, labels without pairs): `soft-bcfw`, whose blocks then have closed-form optima.
2. Structured factors: `soft-bcfw`, which has them as blocks.
3. Graphs without cycles: `bcfw` with max-product inside its loop; the certificate is exact.
4. Large graphs with cycles, a few of them or with few weights, such as pictures: `one-slack`, which makes one plane of all answers
   of the oracle. Two pictures of 300 x 300 pixels took 27 calls for each, where `bcfw` had not converged after 1000; 150 of 30 x 30
   took 4.6 s, and 11.2 s with `bcfw`.
5. Binary variables in pairs: `bcfw` with graph cuts inside its loop; the certificate is for the relaxation. With hundreds of pairs
   an example, many for each variable, and room for their marginals, `soft-bcfw`: cuts of such graphs take longer than its sweeps
   (Yeast with 91 pairs was 2 times faster with cuts, RCV1 with 435 a little slower, bibtex with 12,561 3.6 times slower).
6. Examples so small that exact inference is cheap: `bcfw` with it.
7. Anything else, such as images with many classes: dual decomposition, whose labelings and bounds bracket the exact problem, in
   `one-slack` if there are at most 100 weights, else in `bcfw`. With 36 weights on pictures of 10 x 10 pixels in 4 classes
   `one-slack` was at a gap of 0.002 after 6 to 11 s, `bcfw` at 0.004 to 0.8 after 12 s (60 and 300 pictures, two values of C).

A problem that is not made of factor graphs has only its oracle: `bcfw`, or `one-slack` if it is one example. With
``objective="log"`` or ``"softmax-margin"``: `lbfgs`. On a device (devices/), where one question is asked of all examples at once:
`one-slack`, or `lbfgs`.
"""

from __future__ import annotations

from typing import Any

from maxmargin.inference.choice import exact_engine
from maxmargin.inference.graph_cut import GraphCut
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.solvers.core.solver import Solver
from maxmargin.solvers.cutting_planes.bundle import BundleMethod
from maxmargin.solvers.cutting_planes.one_slack import OneSlack
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.marginals.lbfgs import LBFGS
from maxmargin.solvers.soft.soft_bcfw import SoftBCFW

#: Pairs of an example, and of a variable, above which graph cuts take longer than sweeps, and bytes that the sweeps' marginals may
#: take.
_MANY_PAIRS, _DENSE, _MOST_ROOM = 300, 5, 4_000_000_000
#: Examples that are few, weights that are few, and variables of an example that are many.
_FEW, _FEW_WEIGHTS, _LARGE = 20, 100, 500


def choose_solver(problem: Any, objective: str = "margin") -> Solver:
    """The solver for a problem; its `reason` says why.

    Parameters
    ----------
    problem : FactorGraphs, PythonProblem, ParseForests or MeasureProblem
        What is to be trained.
    objective : "margin", "log" or "softmax-margin"
        What is minimised.
    """
    if getattr(problem, "signs", None) is not None:
        solver: Solver = OneSlack() if objective == "margin" else BundleMethod(objective)
        solver.reason = "some weights have a sign, which the programme of cutting planes keeps"
        return solver
    solver, reason = _choice(problem) if objective == "margin" else _smooth_choice()
    solver.reason = reason
    return solver


def choose_batch_solver(objective: str = "margin") -> Solver:
    """The solver for a device; its `reason` says why."""
    margin = objective == "margin"
    solver: Solver = OneSlack() if margin else LBFGS(objective=objective)
    why = "keeps one plane of them all a round" if margin else "this objective is smooth"
    solver.reason = f"on a device: it asks about all examples at once, and {why}"
    return solver


def _smooth_choice() -> tuple[Solver, str]:
    return LBFGS(), "this objective is smooth"


def _choice(problem: Any) -> tuple[Solver, str]:
    if not isinstance(problem, FactorGraphs):
        if problem.n_examples == 1:
            return OneSlack(), "a single example: one plane a round is all that there is to find"
        return BCFW(), "the problem has a max-oracle and nothing else"
    if problem.zero_one:
        return BCFW(), "the zero-one loss is no sum over variables, and has an oracle of its own"
    if problem.example_factors[-1] == 0:
        return SoftBCFW(), "without factors every block has a closed-form optimum"
    if problem.has_structured:
        return SoftBCFW(), "structured factors are blocks of their own"
    if problem.is_forest:
        return BCFW(), "no graph has a cycle, so max-product is an exact oracle"
    n_variables = int(problem.example_variables[-1])
    if n_variables >= _LARGE * problem.n_examples and (problem.n_examples <= _FEW or problem.n_weights <= _FEW_WEIGHTS):
        return (
            OneSlack(),
            "large graphs, and few of them or few weights: one plane for all takes the fewest calls of the oracle",
        )
    if GraphCut().refusal(problem) is None:
        n_pairs = int(problem.example_factors[-1])
        pairs = n_pairs / problem.n_examples
        room = 8 * int(problem.example_states[-1] + problem.example_tables[-1] + problem.example_messages[-1])
        if pairs > _MANY_PAIRS and n_pairs > _DENSE * n_variables and room < _MOST_ROOM:
            return SoftBCFW(), f"{pairs:.0f} pairs an example: sweeps over them take less time than graph cuts"
        return BCFW(), "binary variables in pairs, so a graph cut solves the relaxation"
    found = exact_engine(problem)
    if found is not None:
        return BCFW(), f"exact inference is cheap: {found[1]}"
    if problem.n_weights <= _FEW_WEIGHTS:
        return OneSlack(), "loopy graphs and few weights: one plane for all takes the fewest calls of the oracle"
    return BCFW(), "loopy graphs: dual decomposition finds labelings and bounds their scores"
