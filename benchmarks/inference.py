"""The relaxation of complete graphs of binary variables: by maximum flow, by linear programmes, and beside public peers.

    python benchmarks/inference.py [--part lp peers] [--figures DIR] [--data-home DIR]

- *lp*: the same relaxation by maximum flow (graph_cut) and by HiGHS from the last basis (linear_program): random scores, and
  loss-augmented scores of Yeast and of RCV1 with 30 labels under weights trained to a gap of 1 %.
- *peers*: graph_cut beside PyMaxflow, thinqpbo and scipy's linprog, as far as they are installed; both of the former are GPL,
  and nothing but this file and `maxmargin bench` imports them.

The paper says "random potentials"; here every entry of every table is uniform in [-1, 1], all four of a pair among them. All
runs are in one thread, and kernels are compiled before the clock starts. Times to be compared alternate; a ratio is the median
over repeats of the ratio inside a repeat, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import pathlib
import time
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from maxmargin.datasets import fetch_rcv1subset1, fetch_yeast
from maxmargin.inference import GraphCut, LinearProgram
from maxmargin.problems import FactorGraphs, Scores, label_edges, multi_label_problem
from maxmargin.solvers import Callback, SoftBCFW

#: Scores closer than this are equal.
EQUAL = 1e-9
#: Seconds that a timing lasts, at least: a few turns of the system's scheduler.
LEAST = 0.05


class Batch(NamedTuple):
    """Graphs of one shape: n variables and `edges` each."""

    name: str
    n: int
    edges: np.ndarray
    graphs: FactorGraphs
    scores: Scores


def random_batch(name, n, edges, n_problems, seed=0, supermodular=False):
    rng = np.random.default_rng(seed)
    graphs = multi_label_problem(np.ones((n_problems, 1)), None, edges, n)
    scores = Scores(rng.uniform(-1, 1, 2 * n * n_problems), rng.uniform(-1, 1, 4 * len(edges) * n_problems))
    if supermodular:
        tables = scores.factors.reshape(-1, 4)
        tables[:, 0] += np.maximum(0.0, tables[:, 1] + tables[:, 2] - tables[:, 0] - tables[:, 3])
    return Batch(name, n, edges, graphs, scores)


def complete(n):
    return np.stack(np.triu_indices(n, 1), axis=1)


def grid(side):
    at = np.arange(side * side).reshape(side, side)
    pairs = (at[:, :-1], at[:, 1:]), (at[:-1], at[1:])
    return np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])


def first_problems(batch, count):
    g = batch.graphs
    part = Scores(batch.scores.variables[: g.example_states[count]], batch.scores.factors[: g.example_tables[count]])
    return batch._replace(graphs=g.take(np.arange(count)), scores=part)


def clock(call, least=0.0):
    """Mean seconds of a call, over calls that take `least` together, and their answers."""
    answers, start = [], time.perf_counter()
    while True:
        answers.append(call())
        seconds = time.perf_counter() - start
        if seconds >= least:
            return seconds / len(answers), answers


def spread(values, form):
    return f"{np.median(values):{form}} ({np.min(values):{form}} - {np.max(values):{form}})"


def save(figure, options, name):
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.figures / f"inference-{name}.png", dpi=110, bbox_inches="tight")
        print(f"picture: {options.figures / f'inference-{name}.png'}")
    plt.close(figure)


# ------------------------------------------------------------------------------------------------------------------ lp


def lp(options):
    batches = [random_batch(f"random, {n} labels", n, complete(n), options.problems, seed=n) for n in (14, 30)]
    batches += [trained_batch(name, options) for name in ("Yeast", "RCV1")]
    cut, program = GraphCut(), LinearProgram(warm=True)
    print(f"{options.problems} complete graphs, {options.repeats} repeats: microseconds a problem, median (from - to)")
    print(f"{'':20} {'open labels':>11} {'graph_cut':>26} {'linear_program':>30} {'ratio':>22}")
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.8 * len(batches)))
    for row, batch in enumerate(batches):
        g, s = batch.graphs, batch.scores
        warm = first_problems(batch, 1)
        for one in (cut, program):  # compiled, and the model built
            one.relax(warm.graphs, warm.scores)
        taken: list[list[float]] = [[], []]
        relaxed: list[Any] = [None, None]
        for _ in range(options.repeats):
            for side, one in enumerate((cut, program)):
                seconds, answers = clock(lambda one=one, g=g, s=s: one.relax(g, s), LEAST)
                taken[side].append(1e6 * seconds / g.n_examples)
                relaxed[side] = answers[-1]
        by_cut, by_lp = relaxed
        np.testing.assert_allclose(by_cut.bounds, by_lp.bounds, rtol=0, atol=1e-7 * np.abs(by_lp.bounds).max())
        ratio = np.array(taken[1]) / np.array(taken[0])
        print(
            f"{batch.name:20} {by_cut.ambiguous.mean():11.1%} {spread(taken[0], '.1f'):>26} "
            f"{spread(taken[1], '.0f'):>30} {spread(ratio, '.0f'):>22}",
            flush=True,
        )
        axes.plot(np.median(taken, axis=1), [row, row], color="0.7", zorder=0)
        for side, color in enumerate(("C0", "C3")):
            axes.plot(taken[side], [row] * len(ratio), "o", color=color, ms=5, alpha=0.6)
        middle = np.sqrt(np.prod(np.median(taken, axis=1)))
        axes.text(middle, row - 0.12, f"x {spread(ratio, '.0f')}", ha="center", va="bottom", fontsize=9)
    axes.set_xscale("log")
    axes.set_yticks(range(len(batches)), [batch.name for batch in batches])
    axes.set(ylim=(len(batches) - 0.5, -0.6), xlabel="microseconds a problem, one thread")
    axes.set_title("the same relaxation: graph_cut (blue), HiGHS from the last basis (red)", fontsize=10)
    axes.grid(alpha=0.3, axis="x")
    save(figure, options, "lp")


def trained_batch(name, options):
    """Loss-augmented scores of training examples, under weights trained to a certified gap of 1 %."""
    if name == "Yeast":
        data = fetch_yeast(data_home=options.data_home)
        X, Y, lam = data.X, data.Y, 0.01
    else:
        both = [fetch_rcv1subset1(options.data_home, subset) for subset in ("train", "test")]
        X, Y = sp.vstack([data.X for data in both], format="csr"), np.concatenate([data.Y for data in both])
        frequent = np.argsort(-Y.sum(axis=0, dtype=np.int64), kind="stable")[:30]
        chosen = np.random.default_rng(0).permutation(len(Y))[:5000]
        X, Y, lam = X[chosen], Y[chosen][:, frequent], 0.0003
    n = Y.shape[1]
    edges = label_edges("full", Y)
    problem = multi_label_problem(X, Y, edges, n)
    # lam is for the number of wrong labels; the loss here is their fraction.
    to_one_per_cent = Callback(lambda report: report.gap > 0.01 * report.primal)
    result = SoftBCFW().solve(problem, 1.0 / (n * lam), tol=0, monitor=to_one_per_cent)
    print(
        f"{name}: trained on {len(Y)} examples in {result.seconds:.1f} s to a gap of {result.gap / result.primal:.2%}"
    )
    part = problem.take(np.arange(min(options.problems, len(Y))))
    return Batch(f"{name}, {n} labels", n, edges, part, part.scores(result.weights, loss_augmented=True))


# --------------------------------------------------------------------------------------------------------------- peers


class Answer(NamedTuple):
    """What a peer found in a batch, or in its first problems."""

    bound: float
    open: float
    #: Seconds of solving alone, where building is a step of its own.
    solving: float | None = None
    n_problems: int | None = None


class Polynomial(NamedTuple):
    """Minus the scores of a batch: constant + sum_i linear_i x_i + sum_ij coupling_ij x_i x_j in each problem."""

    constant: float
    linear: np.ndarray
    coupling: np.ndarray


def peers(options):
    batches = [
        random_batch(f"{options.problems} complete graphs of {n}, {kind}", n, complete(n), options.problems, n, super_)
        for n in (14, 30)
        for kind, super_ in (("mixed", False), ("supermodular", True))
    ]
    side = options.side
    batches += [
        random_batch(f"grid {side} x {side}, {kind}", side * side, grid(side), 1, 1, super_)
        for kind, super_ in (("mixed", False), ("supermodular", True))
    ]
    modules: dict[str, Any] = {}
    for module, package in (("maxflow", "PyMaxflow"), ("thinqpbo", "thinqpbo")):
        try:
            modules[module] = importlib.import_module(module)
        except ImportError:
            print(f"{package} is not installed, and left out: pip install {package}")
    print(f"milliseconds a batch from score tables to labels and bound, {options.repeats} repeats: median (from - to)")
    print(
        "open: labels that the relaxation leaves undecided, by weak persistency but for PyMaxflow's, which is one cut"
    )
    print("united: all problems as one graph, so that Python is called once; one by one: a graph a problem")
    print(f"linprog is given {options.linprog} problems, and its time scaled to the batch")
    calls = [{"graph_cut": by_graph_cut} | peers_of(batch, modules, options) for batch in batches]
    rows = [len(runs) + 1 for runs in calls]
    layout = {"height_ratios": rows, "hspace": 0.35}
    figure, panels = plt.subplots(len(batches), 1, figsize=(9, 0.27 * sum(rows)), sharex=True, gridspec_kw=layout)
    for batch, runs, axes in zip(batches, calls, panels, strict=True):
        answers: dict[str, Answer] = {}
        taken, solving = collections.defaultdict(list), collections.defaultdict(list)
        for call in runs.values():  # compiled, and memory is warm
            call(first_problems(batch, 1))
        for _ in range(options.repeats):
            for name, call in runs.items():
                seconds, found = clock(lambda call=call, batch=batch: call(batch), LEAST)
                answer = found[-1]
                share = batch.graphs.n_examples / (answer.n_problems or batch.graphs.n_examples)
                taken[name].append(1e3 * share * seconds)
                if answer.solving is not None:
                    solving[name].append(1e3 * share * np.mean([one.solving for one in found]))
                answers[name] = answer
        for name, answer in answers.items():
            same = first_problems(batch, answer.n_problems) if answer.n_problems else batch
            np.testing.assert_allclose(
                answer.bound, by_graph_cut(same).bound, rtol=1e-6, err_msg=f"{name}, {batch.name}"
            )
        print(f"\n{batch.name}")
        print(f"{'':32} {'open':>6} {'in all':>28} {'/ ours':>24} {'solving alone':>28} {'/ ours in all':>24}")
        for row, name in enumerate(runs):
            line = f"{name:32} {answers[name].open:6.1%}"
            for values in (taken[name], solving[name]):
                if values:
                    ratio = np.array(values) / np.array(taken["graph_cut"])
                    line += f" {spread(values, '.2f'):>28} {spread(ratio, '.2f'):>24}"
            print(line, flush=True)
            ends = [np.median(values) for values in (taken[name], solving[name]) if values]
            color = "C0" if row == 0 else "0.3"
            axes.plot(ends, [row] * len(ends), color=color)
            axes.plot(ends[:1], [row], "o", color=color)
            axes.plot(ends[1:], [row] * (len(ends) - 1), "o", color=color, mfc="white")
            axes.annotate(
                f"{ends[0]:,.{1 if ends[0] < 100 else 0}f}",
                (ends[0], row),
                (7, -3),
                textcoords="offset points",
                fontsize=8,
            )
        axes.set_xscale("log")
        axes.set_yticks(range(len(runs)), list(runs), fontsize=8)
        axes.set_ylim(len(runs) - 0.4, -0.6)
        axes.set_title(batch.name, fontsize=9, loc="left")
        axes.grid(alpha=0.3, axis="x")
    panels[-1].set_xlim(right=2.5 * panels[-1].get_xlim()[1])
    panels[-1].set_xlabel(
        "milliseconds a batch, one thread; open circles: solving alone, where the interface separates it"
    )
    save(figure, options, "peers")


def peers_of(batch, modules, options):
    """The calls that make sense for a batch."""
    supermodular = "supermodular" in batch.name
    many = batch.graphs.n_examples > 1
    runs = {}
    if "maxflow" in modules:
        network = "" if supermodular else " (doubled)"
        for united in (True, False) if many else (True,):
            how = "" if not many else ", united" if united else ", one by one"
            runs[f"PyMaxflow{network}{how}"] = lambda batch, united=united: by_maxflow(
                modules["maxflow"], batch, not supermodular, united
            )
    if "thinqpbo" in modules:
        for united in (True, False) if many else (True,):
            how = "" if not many else ", united" if united else ", one by one"
            runs[f"thinqpbo{how}"] = lambda batch, united=united: by_thinqpbo(modules["thinqpbo"], batch, united)
    if many:
        runs["scipy linprog (highs)"] = lambda batch: by_linprog(batch, options.linprog)
    return runs


def by_graph_cut(batch):
    found = GraphCut().maximise(batch.graphs, batch.scores)
    return Answer(found.bounds.sum(), found.ambiguous.mean())


def polynomial(batch):
    own = -batch.scores.variables.reshape(-1, batch.n, 2)
    pair = -batch.scores.factors.reshape(-1, len(batch.edges), 4)
    # A sparse product adds up what the pairs of a variable say, of all problems at once.
    ends = [sp.csr_array((np.ones(len(v)), (np.arange(len(v)), v)), (len(v), batch.n)) for v in batch.edges.T]
    linear = own[:, :, 1] - own[:, :, 0]
    linear += (pair[:, :, 2] - pair[:, :, 0]) @ ends[0] + (pair[:, :, 1] - pair[:, :, 0]) @ ends[1]
    coupling = pair[:, :, 0] - pair[:, :, 1] - pair[:, :, 2] + pair[:, :, 3]
    return Polynomial(own[:, :, 0].sum() + pair[:, :, 0].sum(), linear, coupling)


def pieces(batch, united):
    """Number of nodes, the two ends of each edge, and which problems: all of them in one graph, or one each."""
    count = batch.graphs.n_examples
    if united:
        ends = batch.edges[None] + batch.n * np.arange(count)[:, None, None]
        yield batch.n * count, *np.ascontiguousarray(ends.reshape(-1, 2).T), slice(None)
    else:
        i, j = np.ascontiguousarray(batch.edges.T)
        for m in range(count):
            yield batch.n, i, j, slice(m, m + 1)


def by_maxflow(maxflow, batch, doubled, united):
    """A node a variable, on the source's side if it is 1; for mixed pairs another for its complement (roof duality).

    With d = coupling < 0, d x_i x_j = d x_i - d x_i (1 - x_j), an arc i -> j; with d > 0 it is d x_i (1 - x'_j), an arc to the
    complement x'_j = 1 - x_j. Doubled, each term is split into equal halves, one of them with all variables complemented.
    """
    constant, linear, coupling = polynomial(batch)
    below = np.minimum(coupling, 0.0)
    linear = linear + below @ sp.csr_array(
        (np.ones(len(batch.edges)), (np.arange(len(batch.edges)), batch.edges[:, 0])), (len(batch.edges), batch.n)
    )
    flow, n_open, solving, g = 0.0, 0, 0.0, None
    for n, i, j, which in pieces(batch, united):
        c, d = linear[which].ravel(), coupling[which].ravel()
        if g is None:
            g = maxflow.GraphFloat((1 + doubled) * n, (1 + doubled) * len(d))
        else:
            g.reset()
        nodes = g.add_nodes((1 + doubled) * n)
        if doubled:
            none, half = np.zeros(n), 0.5 * np.abs(d)
            g.add_grid_tedges(nodes, np.concatenate([none, 0.5 * c]), np.concatenate([0.5 * c, none]))
            alike, nothing = d <= 0.0, np.zeros(len(d))
            g.add_edges(i, np.where(alike, j, n + j), half, nothing)
            g.add_edges(np.where(alike, n + j, j), n + i, half, nothing)
        else:
            g.add_grid_tedges(nodes, np.zeros(n), c)
            g.add_edges(i, j, np.maximum(-d, 0.0), np.zeros(len(d)))
        start = time.perf_counter()
        flow += g.maxflow()
        solving += time.perf_counter() - start
        sink = g.get_grid_segments(nodes)
        if doubled:
            n_open += int((sink[:n] == sink[n:]).sum())
    return Answer(-(constant + flow), n_open / linear.size, solving)


def by_thinqpbo(thinqpbo, batch, united):
    """Its functions take one term at a time; `map` into an empty queue is the fastest loop that Python has."""
    own = -batch.scores.variables.reshape(-1, batch.n, 2)
    pair = -batch.scores.factors.reshape(-1, len(batch.edges), 4)
    twice, n_open, solving, g = 0.0, 0, 0.0, None
    for n, i, j, which in pieces(batch, united):
        if g is None:
            g = thinqpbo.QPBODouble(n, len(i))
        else:
            g.reset()
        g.add_node(n)
        run(g.add_unary_term, range(n), *own[which].reshape(-1, 2).T.tolist())
        run(g.add_pairwise_term, i.tolist(), j.tolist(), *pair[which].reshape(-1, 4).T.tolist())
        start = time.perf_counter()
        g.solve()
        g.compute_weak_persistencies()
        solving += time.perf_counter() - start
        twice += g.compute_twice_lower_bound()
        n_open += sum(label < 0 for label in map(g.get_label, range(n)))
    return Answer(-0.5 * twice, n_open / own[..., 0].size, solving)


def run(function, *columns):
    collections.deque(map(function, *columns), maxlen=0)


def by_linprog(batch, most):
    """The small form of the program: z_ij between max(0, x_i + x_j - 1) and min(x_i, x_j), only the side that binds."""
    (i, j), n, count = batch.edges.T, batch.n, min(most, batch.graphs.n_examples)
    constant, linear, coupling = polynomial(first_problems(batch, count))
    e = np.arange(len(i))
    eye = sp.csr_array((np.ones(len(e)), (e, e)))
    first, second = (sp.csr_array((np.ones(len(e)), (e, v)), (len(e), n)) for v in (i, j))
    under_i, under_j = sp.hstack([-first, eye], format="csr"), sp.hstack([-second, eye], format="csr")
    above = sp.hstack([first + second, -eye], format="csr")
    total, n_open = 0.0, 0
    for c, d in zip(linear, coupling, strict=True):
        low, high = np.flatnonzero(d < 0.0), np.flatnonzero(d > 0.0)
        A = sp.vstack([under_i[low], under_j[low], above[high]], format="csc")
        b = np.concatenate([np.zeros(2 * len(low)), np.ones(len(high))])
        found = linprog(np.concatenate([c, d]), A_ub=A, b_ub=b, bounds=(0.0, 1.0), method="highs")
        total += found.fun
        n_open += int((np.abs(found.x[:n] - 0.5) < 0.4).sum())
    return Answer(-(constant + total), n_open / linear.size, None, count)


PARTS = {"lp": lp, "peers": peers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--figures", type=pathlib.Path, help="directory for the pictures; without it there are none")
    parser.add_argument("--data-home", help="directory of the data sets (default: MAXMARGIN_DATA)")
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--side", type=int, default=200, help="side of the grid (peers)")
    parser.add_argument("--linprog", type=int, default=100, help="problems that linprog is given, scaled up (peers)")
    options = parser.parse_args()
    for part in options.part:
        print(f"\n== {part} ==", flush=True)
        PARTS[part](options)


if __name__ == "__main__":
    main()
