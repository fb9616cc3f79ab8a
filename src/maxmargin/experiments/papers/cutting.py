"""Joachims, Finley and Yu: Cutting-plane training of structural SVMs (Machine Learning 77, 2009), section 5.

Three tasks: classes (covtype), tags (sentences of the treebank sample, a tenth of the paper's Wall Street Journal) and trees (its
sentences of at most 15 words). The paper's losses of classes and trees are 0 or 100, here 0 or 1: its C is 100 times ours there.
Every run ends when its certified gap is at most epsilon, so that solvers are compared at the same quality; by the paper, each ends
by its own rule. "1-slack" is the algorithm of the paper, without the shorter steps that are the default here (``step=1``).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.svm import SVC

from maxmargin.estimators.binary import BinarySVM
from maxmargin.estimators.chain import ChainSVM
from maxmargin.estimators.multi_class import MultiClassSVM
from maxmargin.estimators.parser import ParserSVM
from maxmargin.experiments.data import Examples, binary_data, class_data, tag_data, tree_data
from maxmargin.experiments.experiment import (
    Beside,
    Experiment,
    Figures,
    Line,
    Panel,
    Picture,
    Row,
    Setting,
    Table,
    Verdict,
    View,
    find,
    judge,
    values_of,
)
from maxmargin.experiments.papers.printed import CUTTING_1, CUTTING_2
from maxmargin.features import TextFeatures
from maxmargin.solvers import NSlack, OneSlack

#: Data sets by task: generated, and real.
_DATA = {"quick": {"classes": "clouds", "tags": "chains", "trees": "grammar"},
         "full": {"classes": "covtype", "tags": "treebank", "trees": "treebank"}}  # fmt: skip
_SOLVERS = ("1-slack, cache", "1-slack", "n-slack")


def _solver(setting: Setting) -> Any:
    name = str(setting["solver"])
    if name == "n-slack":
        return NSlack()
    return OneSlack(cache=int(setting.get("cache", 10)) if "cache" in name else 0, step=1.0)


def _examples(setting: Setting, data_home: str | None) -> Examples:
    load = {"classes": class_data, "tags": tag_data, "trees": tree_data}[str(setting["task"])]
    return load(_DATA[str(setting["of"])][str(setting["task"])], int(setting["n"]), data_home)


def train(setting: Setting, data_home: str | None) -> Figures:
    """Train one task with one solver, and count."""
    data = _examples(setting, data_home)
    options: dict[str, Any] = {
        "C": float(setting["C"]), "tol": float(setting["epsilon"]), "solver": _solver(setting), "max_passes": 10**6,
        "max_seconds": float(setting["limit"]), "n_jobs": 1,
    }  # fmt: skip
    model: Any
    if setting["task"] == "classes":
        model = MultiClassSVM(scale=False, fit_intercept=False, **options)
    elif setting["task"] == "tags":
        text = {"features": TextFeatures.tagging()} if setting["of"] == "full" else {}
        model = ChainSVM(boundary=False, loss="count", scale=False, **text, **options)
    else:
        model = ParserSVM(loss="zero-one", **options)
    began = time.process_time()
    model.fit(data.X, data.y) if data.y is not None else model.fit(data.X)
    processor = time.process_time() - began
    result = model.result_
    return {
        "processor": processor, "seconds": result.seconds + float(result.history["monitor_seconds"][-1]), "rounds": result.n_passes,
        "calls": result.n_oracle_calls, "support": int(result.options.get("support_vectors", 0)), "primal": result.primal,
        "dual": result.dual, "status": str(result.status), "weights": len(result.weights), "n": len(data.X),
        "score": 100.0 * (model.score(data.X_test, data.y_test) if data.y is not None else model.score(data.X_test)),
    }  # fmt: skip


def _done(rows: list[Row]) -> list[Row]:
    """Those that got to their gap in time."""
    return [row for row in rows if row.figures["status"] == "CONVERGED"]


def _panels(rows: list[Row], x: str, y: str, y_label: str) -> list[Panel]:
    """A panel a task, a line a solver."""
    panels = []
    for task in values_of(rows, "task"):
        lines = []
        for solver in values_of(rows, "solver"):
            own = [row for row in _done(rows) if row.setting["task"] == task and row.setting["solver"] == solver]
            lines.append(Line(str(solver), [float(row.setting[x]) for row in own], [row.figures[y] for row in own]))
        panels.append(Panel(str(task), x, y_label, lines, log_x=True, log_y=True))
    return panels


def _slope(rows: list[Row], task: Any, solver: str, x: str, y: str) -> float | None:
    """The exponent of x in y: the slope of a line through the logarithms."""
    own = [
        row for row in _done(rows) if row.setting["task"] == task and row.setting["solver"] == solver and row.figures[y]
    ]
    if len(own) < 3:
        return None
    return float(
        np.polyfit([np.log(float(row.setting[x])) for row in own], [np.log(row.figures[y]) for row in own], 1)[0]
    )


def _slopes(rows: list[Row], solver: str, x: str, y: str) -> dict[str, float]:
    found = {str(task): _slope(rows, task, solver, x, y) for task in values_of(rows, "task")}
    return {task: slope for task, slope in found.items() if slope is not None}


def _judge_slopes(claim: str, slopes: dict[str, float], least: float, most: float) -> Verdict:
    holds = all(least <= slope <= most for slope in slopes.values()) if slopes else None
    return judge(claim, holds, "Exponents: " + ", ".join(f"{task} {slope:.2f}" for task, slope in slopes.items()) + ".")


# ------------------------------------------------------------------------------------------------------------ shows


def show_table_1(rows: list[Row]) -> View:
    """Table 1: hours there, seconds here."""
    cells = []
    ratios: dict[str, tuple[float, float, float]] = {}
    for task in values_of(rows, "task"):
        pair = [find(rows, task=task, solver=solver) for solver in ("1-slack, cache", "n-slack")]
        for row, column in zip(pair, (0, 1), strict=True):
            if row is None:
                continue
            f, printed = row.figures, CUTTING_1[str(task)] if row.setting["of"] == "full" else ((None,) * 2,) * 3
            cells.append(
                [str(task), row.setting["solver"], f["n"], f["weights"], f["seconds"], *(
                    Beside(value, paper[column]) for value, paper in zip((f["calls"], f["support"]), printed[1:], strict=True)
                ), f["status"]]
            )  # fmt: skip
        if pair[0] is not None and pair[1] is not None:
            one, many = pair[0].figures, pair[1].figures
            ratios[str(task)] = (
                many["seconds"] / one["seconds"],
                many["calls"] / one["calls"],
                many["support"] / max(1, one["support"]),
            )
    verdicts = []
    if ratios:
        told = "; ".join(
            f"{task}: {seconds:.1f} times the seconds, {calls:.1f} times the calls, {support:.0f} times the support vectors"
            for task, (seconds, calls, support) in ratios.items()
        )
        verdicts = [
            judge("n-slack has far more support vectors.", all(one[2] > 10 for one in ratios.values()), f"n-slack takes {told}."),
            judge("1-slack with a cache asks the oracle less often.", all(one[1] > 1 for one in ratios.values()),
                  "Calls of n-slack by its own: " + ", ".join(f"{task} {one[1]:.1f}" for task, one in ratios.items()) + "."),
            judge("1-slack is substantially faster.", all(one[0] > 2 for one in ratios.values()),
                  "n-slack here keeps its inner products and solves for one example at a time, which the paper's does not."),
        ]  # fmt: skip
    columns = ("task", "solver", "n", "weights", "seconds", "oracle calls", "support vectors", "status")
    return View([Table("1-slack with a cache, and n-slack.", columns, cells)], verdicts=verdicts)


def show_scaling(rows: list[Row]) -> View:
    """Figures 1, 3, 4 and 5."""
    titles = {
        "seconds": "training seconds",
        "rounds": "iterations",
        "support": "support vectors",
        "calls": "oracle calls",
    }
    pictures = [
        Picture(f"Figure {figure}: {titles[y]} by the number of examples.", _panels(rows, "n", y, titles[y]))
        for figure, y in ((1, "seconds"), (3, "rounds"), (4, "support"), (5, "calls"))
    ]
    few = {task: slope for task, slope in _slopes(rows, "1-slack", "n", "seconds").items() if task != "trees"}
    rounds = {task: slope for task, slope in _slopes(rows, "1-slack", "n", "rounds").items() if task != "trees"}
    verdicts = [
        _judge_slopes("Training time of 1-slack is at most linear in n for classes and tags.", few, -1.0, 1.2),
        _judge_slopes("Iterations of 1-slack are about constant in n.", rounds, -0.5, 0.3),
        _judge_slopes(
            "Support vectors of 1-slack do not grow with n.", _slopes(rows, "1-slack", "n", "support"), -1.0, 0.3
        ),
        _judge_slopes("Those of n-slack do.", _slopes(rows, "n-slack", "n", "support"), 0.4, 2.0),
        _judge_slopes(
            "Oracle calls of 1-slack with a cache are about linear in n.",
            _slopes(rows, "1-slack, cache", "n", "calls"),
            -0.2,
            1.3,
        ),
    ]
    return View([_counts(rows, ("task", "n", "solver"))], pictures, verdicts)


def _counts(rows: list[Row], names: tuple[str, ...]) -> Table:
    measures = ("seconds", "rounds", "calls", "support", "score")
    cells = [
        [*(row.setting[name] for name in names), *(row.figures[name] for name in measures), row.figures["status"]]
        for row in rows
    ]
    return Table(
        "All runs.",
        (*names, "seconds", "iterations", "oracle calls", "support vectors", "test score %", "status"),
        cells,
    )


def show_best_C(rows: list[Row]) -> View:
    """Figure 2: of each size, the C with the best test score."""
    best: dict[tuple[Any, Any, Any], Row] = {}
    for row in _done(rows):
        key = row.setting["task"], row.setting["solver"], row.setting["n"]
        if key not in best or row.figures["score"] > best[key].figures["score"]:
            best[key] = row
    chosen = list(best.values())
    verdict = _judge_slopes(
        "With the best C for each size training time is still at most about linear in n.",
        _slopes(chosen, "1-slack", "n", "seconds"),
        -1.0,
        1.3,
    )
    picture = Picture(
        "Figure 2: training seconds with the C that is best for each size.", _panels(chosen, "n", "seconds", "seconds")
    )
    return View([_counts(chosen, ("task", "n", "solver", "C"))], [picture], [verdict])


def show_cache(rows: list[Row]) -> View:
    """Figure 6."""
    lines, told, holds = [], [], []
    for task in values_of(rows, "task"):
        own = [row for row in _done(rows) if row.setting["task"] == task]
        lines.append(
            Line(
                str(task),
                [float(row.setting["cache"]) for row in own],
                [row.figures["calls"] / row.figures["n"] for row in own],
            )
        )
        calls = {row.setting["cache"]: row.figures["calls"] for row in own}
        if {0, 5, 20} <= set(calls):
            holds.append(calls[5] < calls[0] and calls[5] <= 1.3 * calls[20])
            told.append(f"{task}: {calls[0]} without, {calls[5]} with 5 planes, {calls[20]} with 20")
    verdict = judge(
        "A cache of 5 planes an example has all of the benefit (within 1.3 times the calls of one of 20).",
        all(holds) if holds else None,
        "Calls: " + "; ".join(told) + ".",
    )
    panel = Panel("the cache", "planes kept for each example", "oracle calls an example", lines, log_y=True)
    picture = Picture("Figure 6: oracle calls by the size of the cache.", [panel])
    return View([_counts(rows, ("task", "cache"))], [picture], [verdict])


def show_difference(rows: list[Row]) -> View:
    """Figure 7."""
    lines, cells, worst = [], [], 0.0
    apart: list[tuple[float, str]] = []
    for task in values_of(rows, "task"):
        at, differences = [], []
        for C in values_of([row for row in rows if row.setting["task"] == task], "C"):
            one, many = (
                find(rows, task=task, C=C, solver="1-slack, cache"),
                find(rows, task=task, C=C, solver="n-slack"),
            )
            if one is None or many is None or len(_done([one, many])) < 2:
                continue
            difference = (one.figures["dual"] - many.figures["dual"]) / many.figures["dual"]
            at.append(float(C))
            differences.append(100.0 * difference)
            worst = max(worst, abs(100.0 * difference))
            objectives = f"{one.figures['primal']:.4f} and {many.figures['primal']:.4f}"
            apart.append(
                (
                    abs(one.figures["score"] - many.figures["score"]),
                    f"{task} with C = {C:g}, at objectives of {objectives}",
                )
            )
            cells.append(
                [
                    str(task),
                    C,
                    one.figures["dual"],
                    many.figures["dual"],
                    100.0 * difference,
                    one.figures["score"],
                    many.figures["score"],
                ]
            )
        lines.append(Line(str(task), at, differences))
    holds, why = None, ""
    if apart:
        points, where = max(apart)
        holds = worst <= 3.0 and points <= 1.0
        why = f"The dual values differ by at most {worst:.2f} %, test scores by at most {points:.2f} points ({where})."
        if not holds:
            why += (
                " Both are certified to epsilon. Where rules alone fit so little that zero weights are as good, too, as on the "
                "trees of the treebank sample, 1-slack returns those if it has seen nothing better."
            )
    verdict = judge("Both find solutions of the same quality.", holds, why)
    columns = ("task", "C", "dual, 1-slack", "dual, n-slack", "difference %", "score %, 1-slack", "score %, n-slack")
    panel = Panel("1-slack against n-slack", "C", "difference of the dual value %", lines, log_x=True)
    return View([Table("Dual values and test scores.", columns, cells, 3)], [Picture("Figure 7.", [panel])], [verdict])


def show_epsilon(rows: list[Row]) -> View:
    """Figure 8."""
    return _show_growth(rows, "epsilon", 8, "1 / epsilon", -1.0)


def show_C(rows: list[Row]) -> View:
    """Figure 9."""
    return _show_growth(rows, "C", 9, "C", 1.0)


def _show_growth(rows: list[Row], name: str, figure: int, word: str, sign: float) -> View:
    pictures = [
        Picture(f"Figure {figure}: iterations by {name}.", _panels(rows, name, "rounds", "iterations")),
        Picture(f"Figure {figure}: oracle calls by {name}.", _panels(rows, name, "calls", "oracle calls")),
    ]
    rounds = {task: sign * slope for task, slope in _slopes(rows, "1-slack", name, "rounds").items()}
    calls = {task: sign * slope for task, slope in _slopes(rows, "1-slack, cache", name, "calls").items()}
    verdicts = [
        _judge_slopes(f"Iterations grow more slowly than {word}.", rounds, -1.0, 0.95),
        _judge_slopes(f"With a cache, oracle calls hardly grow with {word}.", calls, -1.0, 0.5),
    ]
    return View([_counts(rows, ("task", name, "solver"))], pictures, verdicts)


# ------------------------------------------------------------------------------------------ table 2: binary problems


def train_binary(setting: Setting, data_home: str | None) -> Figures:
    """1-slack, or LIBSVM, which decomposes the dual as SVM-light does, to about the same objective."""
    data, C = binary_data(str(setting["data"]), int(setting["n"]), data_home), float(setting["C"])
    n = len(data.y)
    began = time.process_time()
    if setting["solver"] == "1-slack":
        model = BinarySVM(
            C=C * n, solver=OneSlack(step=1.0), tol=0.001, scale=False, fit_intercept=False, max_passes=10**6, n_jobs=1
        )
        model.fit(data.X, data.y)
        support = int(model.result_.options["support_vectors"])
    else:
        model = SVC(kernel="linear", C=C, tol=0.001, cache_size=500).fit(data.X, data.y)
        support = len(model.support_)
    return {"processor": time.process_time() - began, "support": support, "n": n, "features": data.X.shape[1],
            "score": 100.0 * float(np.mean(model.predict(data.X_test[:10_000]) == data.y_test[:10_000]))}  # fmt: skip


def show_binary(rows: list[Row]) -> View:
    """Table 2."""
    cells, ratios = [], {}
    for data in values_of(rows, "data"):
        one, other = find(rows, data=data, solver="1-slack"), find(rows, data=data, solver="decomposition")
        if one is None or other is None:
            continue
        a, b = one.figures, other.figures
        cells.append(
            [
                str(data),
                a["n"],
                a["features"],
                a["processor"],
                b["processor"],
                a["support"],
                b["support"],
                a["score"],
                b["score"],
            ]
        )
        ratios[str(data)] = b["processor"] / a["processor"]
    verdict = judge(
        "1-slack is faster than a decomposition method.", all(ratio > 1 for ratio in ratios.values()) if ratios else None,
        "Decomposition takes " + ", ".join(f"{ratio:.1f} times as long ({name})" for name, ratio in ratios.items()) + ".",
    )  # fmt: skip
    columns = ("data", "n", "features", "1-slack, s", "decomposition, s", "1-slack, vectors", "decomposition, vectors",
               "1-slack, score %", "decomposition, score %")  # fmt: skip
    printed = Table(
        "As printed, on data that are larger: seconds of 1-slack and of SVM-light.",
        ("data", "n", "features", "1-slack, s", "SVM-light, s", "1-slack, vectors", "SVM-light, vectors"),
        [list(row) for row in CUTTING_2],
    )
    return View([Table("Processor seconds and support vectors.", columns, cells), printed], verdicts=[verdict])


# ----------------------------------------------------------------------------------------------------- declarations

#: C and epsilon, by task: about the best for the score.
_AT = {"classes": (10_000.0, 0.001), "tags": (100.0, 0.1), "trees": (100.0, 0.01)}
_QUICK_AT = {"classes": (100.0, 0.005), "tags": (30.0, 0.05), "trees": (100.0, 0.005)}
_SIZE = {"classes": 522_911, "tags": 3_354, "trees": 900}
_QUICK_SIZE = {"classes": 2000, "tags": 400, "trees": 200}


def _grid(mode: str, solvers: tuple[str, ...], tasks: tuple[str, ...], **lists: Any) -> tuple[dict[str, Any], ...]:
    """Settings of all tasks; "n" may be a number of halvings, C and epsilon factors of the task's own."""
    at, size = (_AT, _SIZE) if mode == "full" else (_QUICK_AT, _QUICK_SIZE)
    parts = []
    for task in tasks:
        C, epsilon = at[task]
        parts.append(
            {"task": (task,), "of": (mode,), "n": tuple(size[task] >> k for k in lists.get("halvings", (0,))),
             "C": tuple(C * factor for factor in lists.get("C", (1.0,))),
             "epsilon": tuple(epsilon * factor for factor in lists.get("epsilon", (1.0,))), "solver": solvers,
             "limit": (600.0 if mode == "full" else 20.0,)} | ({"cache": lists["cache"]} if "cache" in lists else {})
        )  # fmt: skip
    return tuple(parts)


_ALL = ("classes", "tags", "trees")
_ABOUT = "Sizes are halved; times and counts are drawn on logarithmic axes. "
EXPERIMENTS = [
    Experiment(
        "cutting-table-1", "cutting", "Table 1: 1-slack with a cache, and n-slack",
        "Seconds here, hours in the paper, on machines twenty years apart; calls and support vectors are beside the printed ones, "
        "which are of more sentences and trees.",
        train, _grid("quick", ("1-slack, cache", "n-slack"), _ALL), _grid("full", ("1-slack, cache", "n-slack"), _ALL),
        show_table_1, timed=True,
    ),
    Experiment(
        "cutting-scaling", "cutting", "Figures 1, 3, 4 and 5: how training grows with the number of examples", _ABOUT,
        train, _grid("quick", _SOLVERS, _ALL, halvings=(2, 1, 0)),
        _grid("full", _SOLVERS, ("tags", "trees"), halvings=(4, 3, 2, 1, 0))
        + _grid("full", _SOLVERS, ("classes",), halvings=(8, 7, 6, 5, 4)),
        show_scaling, timed=True,
    ),
    Experiment(
        "cutting-figure-2", "cutting", "Figure 2: the same with the best C for each size", _ABOUT,
        train, _grid("quick", ("1-slack",), ("classes", "tags"), halvings=(2, 1, 0), C=(0.1, 1.0)),
        _grid("full", ("1-slack", "1-slack, cache"), ("classes", "tags"), halvings=(8, 7, 6, 5), C=(0.01, 0.1, 1.0)),
        show_best_C, timed=True,
    ),
    Experiment(
        "cutting-figure-6", "cutting", "Figure 6: the size of the cache", "Oracle calls with caches of 0 to 20 planes an example.",
        train, _grid("quick", ("1-slack, cache",), _ALL, cache=(0, 5, 20)),
        _grid("full", ("1-slack, cache",), _ALL, halvings=(3,), cache=(0, 1, 2, 5, 10, 20)), show_cache, timed=True,
    ),
    Experiment(
        "cutting-figure-7", "cutting", "Figure 7: are the solutions different?", "Dual values and test scores of both, by C.",
        train, _grid("quick", ("1-slack, cache", "n-slack"), ("classes", "tags"), C=(0.1, 1.0)),
        _grid("full", ("1-slack, cache", "n-slack"), ("tags", "trees"), C=(0.01, 0.1, 1.0))
        + _grid("full", ("1-slack, cache", "n-slack"), ("classes",), halvings=(5,), C=(0.01, 0.1, 1.0)),
        show_difference, timed=True,
    ),
    Experiment(
        "cutting-figure-8", "cutting", "Figure 8: how training grows with the precision", "Iterations and oracle calls by epsilon.",
        train, _grid("quick", ("1-slack", "1-slack, cache"), ("classes", "tags"), epsilon=(4.0, 2.0, 1.0)),
        _grid("full", ("1-slack", "1-slack, cache"), _ALL, halvings=(3,), epsilon=(10.0, 5.0, 2.0, 1.0, 0.5)),
        show_epsilon, timed=True,
    ),
    Experiment(
        "cutting-figure-9", "cutting", "Figure 9: how training grows with C", "Iterations and oracle calls by C.",
        train, _grid("quick", ("1-slack", "1-slack, cache"), ("classes", "tags"), C=(0.01, 0.1, 1.0)),
        _grid("full", ("1-slack", "1-slack, cache"), _ALL, halvings=(3,), C=(0.01, 0.03, 0.1, 0.3, 1.0)), show_C, timed=True,
    ),
    Experiment(
        "cutting-table-2", "cutting", "Table 2: binary problems, beside a decomposition method",
        "1-slack beside LIBSVM (scikit-learn's SVC), which decomposes the dual as SVM-light does. Of covtype and ijcnn1 "
        "20,000 rows.",
        train_binary, ({"data": ("clouds",), "n": (10_000,), "C": (0.1,), "solver": ("1-slack", "decomposition")},),
        ({"data": ("reuters", "ijcnn1", "covtype"), "n": (20_000,), "C": (1.0,), "solver": ("1-slack", "decomposition")},),
        show_binary, timed=True,
    ),
]  # fmt: skip
