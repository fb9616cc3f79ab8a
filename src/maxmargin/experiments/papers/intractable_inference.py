"""Finley and Joachims: Training structural SVMs when exact inference is intractable (ICML 2008), section 4: figures 1 and 2."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import TooLargeError
from maxmargin.experiments.experiment import (
    Experiment,
    Figures,
    Line,
    Panel,
    Picture,
    Row,
    Setting,
    Table,
    View,
    find,
    judge,
    values_of,
)
from maxmargin.inference import BranchAndBound, Combined, GraphCut, Greedy, LinearProgram, LoopyBP
from maxmargin.problems import Scores, multi_label_problem

_ROUNDS = 30
#: By the names of the paper.
ENGINES: dict[str, Any] = {
    "Greedy": Greedy(),
    "LBP": LoopyBP(max_rounds=_ROUNDS, damping=0.0, labeling="last"),
    "Combine": Combined(max_rounds=_ROUNDS, damping=0.0, labeling="last"),
    "Exact": BranchAndBound(),
    # Roof duality solves the same relaxation as the linear programme; an open label counts one half.
    "LProg": GraphCut(rounding="fraction"),
}


def random_graphs(n: int, count: int) -> tuple[Any, Scores]:
    """Complete graphs of n binary labels; all entries of all tables are uniform in [-1, 1]."""
    rng = np.random.default_rng(n)
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    graphs = multi_label_problem(np.ones((count, 1)), None, edges, n)
    return graphs, Scores(rng.uniform(-1, 1, 2 * n * count), rng.uniform(-1, 1, 4 * len(edges) * count))


def time_inference(setting: Setting, data_home: str | None) -> Figures:
    """Figure 1: the mean seconds of a problem, of up to `problems` in a quarter of a second or so."""
    engines: dict[str, Any] = ENGINES | {"Cut": GraphCut(), "LProg": LinearProgram()}
    engine = engines[str(setting["engine"])]
    n, most = int(setting["nodes"]), int(setting["problems"])
    graphs, scores = random_graphs(n, most)
    states, tables = graphs.example_states, graphs.example_tables
    count = 1
    try:
        # The first call compiles, and finds out what depends on the graph alone.
        engine.maximise(graphs.take(np.arange(1)), Scores(scores.variables[: states[1]], scores.factors[: tables[1]]))
        while True:
            part = graphs.take(np.arange(count))
            some = Scores(scores.variables[: states[count]], scores.factors[: tables[count]])
            began = time.perf_counter()
            engine.maximise(part, some)
            taken = time.perf_counter() - began
            if count == most or taken > 0.25:
                return {"seconds": taken / count, "problems": count}
            count = min(most, max(2 * count, int(0.3 / max(taken, 1e-6) * count)))
    except TooLargeError as error:
        return {"seconds": None, "why": str(error)}


def count_better(setting: Setting, data_home: str | None) -> Figures:
    """Figure 2: for each problem, how many labelings score above the one that the engine found, sorted."""
    name, n, count = str(setting["engine"]), int(setting["nodes"]), int(setting["problems"])
    graphs, scores = random_graphs(n, count)
    # The paper's cuts give an open label 0 or 1 by a coin.
    engine = GraphCut(rounding="random") if name == "Cut" else ENGINES[name]
    found = engine.maximise(graphs, scores)
    value = graphs.labeling_scores(scores, found.labels)
    above = (_all_scores(graphs, scores, n) > value[:, None] + 1e-9).sum(axis=1)
    return {"above": np.sort(above)}


def _all_scores(graphs: Any, scores: Scores, n: int) -> NDArray[np.float64]:
    """Scores (problems, 2^n) of every labeling, in plain NumPy."""
    states = np.arange(2**n)[:, None] >> np.arange(n) & 1
    variables = scores.variables.reshape(-1, n, 2)
    tables = scores.factors.reshape(len(variables), -1, 4)
    total = np.zeros((len(variables), 2**n))
    for i in range(n):
        total += variables[:, i, states[:, i]]
    for e, (one, other) in enumerate(zip(*np.triu_indices(n, 1), strict=True)):
        total += tables[:, e, 2 * states[:, one] + states[:, other]]
    return total


def show_times(rows: list[Row]) -> View:
    """Figure 1."""
    lines = []
    for name in values_of(rows, "engine"):
        own = [row for row in rows if row.setting["engine"] == name and row.figures["seconds"] is not None]
        lines.append(Line(name, [row.setting["nodes"] for row in own], [row.figures["seconds"] for row in own]))  # type: ignore[misc]
    verdicts = []
    nodes = [n for n in values_of(rows, "nodes") if all(_seconds(rows, name, n) for name in ("Cut", "LBP", "LProg"))]
    if nodes:
        cut, bp, lp = (float(_seconds(rows, name, nodes[-1]) or 0.0) for name in ("Cut", "LBP", "LProg"))
        verdicts.append(
            judge(
                "Cuts are substantially faster than LBP, and orders of magnitude faster than the linear programme.",
                bp > 2.0 * cut and lp > 50.0 * cut,
                f"At {nodes[-1]} nodes LBP takes {bp / cut:.1f} times as long as cuts, the linear programme {lp / cut:.0f} times.",
            )
        )
    panel = Panel("time of inference", "nodes of a complete graph", "seconds a problem", lines, log_x=True, log_y=True)
    return View(
        pictures=[Picture("Time of inference by the number of nodes (one thread).", [panel])], verdicts=verdicts
    )


def _seconds(rows: list[Row], engine: str, nodes: int) -> float | None:
    row = find(rows, engine=engine, nodes=nodes)
    return None if row is None else row.figures["seconds"]


def show_better(rows: list[Row]) -> View:
    """Figure 2."""
    found = {str(row.setting["engine"]): np.asarray(row.figures["above"]) for row in rows}
    lines = [
        Line(name, list(range(1, len(above) + 1)), (above + 1).tolist(), marker=False) for name, above in found.items()
    ]
    table = Table(
        "Labelings that score above the one found.",
        ("engine", "none above (% of problems)", "mean", "largest"),
        [
            [name, 100.0 * float((above == 0).mean()), float(above.mean()), int(above.max())]
            for name, above in found.items()
        ],
    )
    verdicts = []
    if {"Greedy", "LBP", "Combine", "Cut"} <= set(found):
        best = {name: 100.0 * float((above == 0).mean()) for name, above in found.items()}
        mean = {name: float(above.mean()) for name, above in found.items()}
        verdicts = [
            judge(
                "LBP finds the best labeling more often than greedy search, but falls into far worse ones.",
                best["LBP"] > best["Greedy"] and found["LBP"].max() > found["Greedy"].max(),
                f"Best: {best['LBP']:.0f} % and {best['Greedy']:.0f} %; above: {found['LBP'].max()} and {found['Greedy'].max()}.",
            ),
            judge(
                "The better of both is much better than either.",
                mean["Combine"] < 0.5 * min(mean["LBP"], mean["Greedy"]),
                f"Labelings above, on average: {mean['Combine']:.2f}, {mean['LBP']:.2f} and {mean['Greedy']:.2f}.",
            ),
            judge(
                "Cuts with coins for open labels are the worst.",
                mean["Cut"] > max(mean["LBP"], mean["Greedy"]),
                f"{mean['Cut']:.0f} labelings above, on average.",
            ),
        ]
    panel = Panel("quality of inference", "problems, sorted", "1 + labelings above the one found", lines, log_y=True)
    return View([table], [Picture("Labelings that score above the one found, by problem.", [panel])], verdicts)


_NODES = (4, 6, 8, 10, 14, 20, 30, 50)
EXPERIMENTS = [
    Experiment(
        "intractable-figure-1", "intractable", "Figure 1: time of inference",
        "Complete graphs of binary labels with random scores, and the mean time in which each engine labels one.",
        time_inference,
        ({"engine": ("Greedy", "LBP", "Combine", "Cut", "LProg", "Exact"), "nodes": (4, 8, 14, 20), "problems": (200,)},),
        ({"engine": ("Greedy", "LBP", "Combine", "Cut", "LProg", "Exact"), "nodes": _NODES, "problems": (1000,)},),
        show_times, timed=True,
    ),
    Experiment(
        "intractable-figure-2", "intractable", "Figure 2: quality of inference",
        "1000 complete graphs of 10 labels (300 in quick mode): all 1024 labelings are scored, and those above counted.",
        count_better,
        ({"engine": ("Greedy", "LBP", "Combine", "Cut"), "nodes": (10,), "problems": (300,)},),
        ({"engine": ("Greedy", "LBP", "Combine", "Cut"), "nodes": (10,), "problems": (1000,)},),
        show_better,
    ),
]  # fmt: skip
