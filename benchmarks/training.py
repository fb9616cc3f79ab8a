"""Training multi-label models: seconds to a certified gap, and what the softness and the number of examples do.

    python benchmarks/training.py [--data yeast rcv1] [--part compare rho size] [--figures DIR] [--data-home DIR]

After section 6 of Meshi, Srebro and Hazan (2015): a weight for each label and feature and one for each pair of labels, on Yeast
(14 labels, lam = 0.01) and on RCV1 (the 30 most frequent labels, 5000 of the 6000 documents, lam = 3e-4). Both lam are for the
number of wrong labels; the loss here is their fraction, so C = 1 / (labels x lam), and a rho of the paper's is labels x rho here.

- *compare* (their figure 2): seconds until the certified gap of the relaxed problem G is 1 % and 0.1 % of the primal value, for the
  soft solver, for BCFW with graph cuts and with HiGHS from the last basis, and for DLPW, plain and smooth. The picture has both
  bounds, and the test error of the weights that a run would return if it stopped there.
- *rho* (their figure 1): a fixed rho without multipliers, for the paper's three values, beside the default: the hard objective g
  and the test error against time.
- *size* (their figure 3): 10, 25, 50 and 100 % of the examples: seconds to 1 %, test error there, and the paper's difference
  between the hard objective at the soft optimum (rho = 1) and its own optimum.

One thread. Seconds are the solver's own; "checks" are the seconds of its bounds up to then, apart. BCFW learns from its checks
(their labelings join the planes), so ratios are given without and with them. Solvers take turns; one that needs more than a
fifth of --seconds is not repeated.
"""

from __future__ import annotations

import argparse
import copy
import pathlib
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.metrics import f1_score

from maxmargin.datasets import fetch_rcv1subset1, fetch_yeast
from maxmargin.inference import GraphCut, LinearProgram
from maxmargin.inference.batches import predict
from maxmargin.problems import FactorGraphs, label_edges, multi_label_problem
from maxmargin.solvers import BCFW, DLPW, Callback, SoftBCFW

#: Temperature of the smooth DLPW, in units of the task loss.
SMOOTHING = 3e-4
SHARES = (0.01, 0.001)
#: A run that takes more than this share of --seconds is not repeated.
SLOW = 0.2
PARTS_OF_DATA = (0.1, 0.25, 0.5, 1.0)


class Data(NamedTuple):
    """A training problem, the test examples, and how a labeling of those is measured."""

    name: str
    problem: FactorGraphs
    C: float
    test: FactorGraphs
    truth: np.ndarray
    measure: str

    @property
    def n_labels(self):
        return self.truth.shape[1]

    def error(self, weights):
        """The measure, in per cent, of the weights' predictions by graph cuts."""
        found = predict(self.test, weights, GraphCut()).labels.reshape(self.truth.shape)
        if self.measure == "Hamming error":
            return 100.0 * np.mean(found != self.truth)
        return 100.0 * f1_score(self.truth, found, average="micro")


def load(name, options):
    if name == "yeast":
        train, test = (fetch_yeast(options.data_home, subset) for subset in ("train", "test"))
        X, Y, X_test, Y_test, lam, measure = train.X, train.Y, test.X, test.Y, 0.01, "Hamming error"
    else:
        both = [fetch_rcv1subset1(options.data_home, subset) for subset in ("train", "test")]
        X, Y = sp.vstack([data.X for data in both], format="csr"), np.concatenate([data.Y for data in both])
        Y = Y[:, np.argsort(-Y.sum(axis=0, dtype=np.int64), kind="stable")[:30]]
        order = np.random.default_rng(0).permutation(len(Y))
        train, test = order[:5000], order[5000:]
        X, Y, X_test, Y_test, lam, measure = X[train], Y[train], X[test], Y[test], 3e-4, "micro-F1"
    X, Y, n = X[: options.examples], Y[: options.examples], Y.shape[1]
    edges = label_edges("full", Y)
    problem = multi_label_problem(X, Y, edges, n)
    return Data(name, problem, 1.0 / (n * lam), multi_label_problem(X_test, None, edges, n), Y_test, measure)


class Trace(NamedTuple):
    """A run: its result, and the test measure at each check, if that was looked at."""

    result: Any
    measures: np.ndarray

    def reached(self, share):
        """The first check whose gap is at most this share of the primal value, or None."""
        h = self.result.history
        at = np.flatnonzero(h["gap"] <= share * h["primal"])
        return at[0] if len(at) else None

    def seconds(self, share, checks=False):
        """Seconds until then, infinite if never."""
        at, h = self.reached(share), self.result.history
        return np.inf if at is None else h["seconds"][at] + checks * h["monitor_seconds"][at]


def train(solver, data, options, share, look=True):
    """Run until the gap is `share` of the primal value, or for --seconds."""
    measures = []
    if look:
        solver = with_look(solver, lambda weights: measures.append(data.error(weights)))
    stop = Callback(lambda report: report.gap > share * report.primal)
    result = solver.solve(data.problem, data.C, tol=0, max_passes=10**6, max_seconds=options.seconds, monitor=stop)
    return Trace(result, np.array(measures))


def with_look(solver, look):
    """The same solver, showing at each check the weights it would return; a monitor is not told them."""

    class Looking(type(solver)):
        def make_run(self, *arguments):
            run = super().make_run(*arguments)
            check = run.check

            def check_and_look(now, off_schedule=False):
                check(now, off_schedule)
                look(run.weights(now))

            run.check = check_and_look
            return run

    looking = copy.copy(solver)
    looking.__class__ = Looking
    return looking


def compile_kernels(solvers, data):
    few = data.problem.take(np.arange(20))
    for solver in solvers:
        solver.solve(few, data.C, max_passes=1)
    data.error(np.zeros(data.problem.n_weights))


def spread(values, form):
    """Median, and smallest and largest if there are several."""
    values = [value for value in values if np.isfinite(value)]
    if not values:
        return "not within"
    middle = f"{np.median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}-{max(values):{form}})"


def save(figure, options, name):
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.figures / f"training-{name}.png", dpi=110, bbox_inches="tight")
        print(f"picture: {options.figures / f'training-{name}.png'}")
    plt.close(figure)


# ------------------------------------------------------------------------------------------------------------- compare


def compare(data, options):
    reference = "BCFW, HiGHS"
    solvers = {
        "SoftBCFW": SoftBCFW(),
        "BCFW, graph cuts": BCFW("graph_cut"),
        reference: BCFW(LinearProgram(warm=True)),
        "DLPW": DLPW(),
        "DLPW, smooth": DLPW(smoothing=SMOOTHING),
    }
    compile_kernels(solvers.values(), data)
    traces = {name: [] for name in solvers}
    for repeat in range(options.repeats):
        for name, solver in solvers.items():
            last = traces[name][-1].result if repeat else None
            if last is not None and last.seconds + last.history["monitor_seconds"][-1] > SLOW * options.seconds:
                continue
            traces[name].append(train(solver, data, options, min(SHARES), look=repeat == 0))
    for share in SHARES:
        print(f"\nto a certified gap of {share:.1%} (seconds: median and range; limit {options.seconds:g} s)\n")
        print(
            f"| {'solver':16} | runs | passes | {'seconds':>20} | {'with checks':>20} | HiGHS takes x times |        with checks |"
        )
        print(f"|{'-' * 18}|-----:|-------:|{'-' * 21}:|{'-' * 21}:|--------------------:|-------------------:|")
        for name, runs in traces.items():
            own, whole = ([run.seconds(share, checks) for run in runs] for checks in (False, True))
            ratios = [against(traces[reference], runs, share, checks) for checks in (False, True)]
            at = runs[0].reached(share)
            passes = "-" if at is None else f"{runs[0].result.history['n_passes'][at]:.0f}"
            print(
                f"| {name:16} | {len(runs):4} | {passes:>6} | {spread(own, '.2f'):>20} | {spread(whole, '.2f'):>20} "
                f"| {ratios[0]:>19} | {ratios[1]:>18} |"
            )
    print("\nwhere each stopped:\n")
    print(f"| {'solver':16} | seconds | checks |   primal |     dual |    gap | test {data.measure:>13} |")
    print(f"|{'-' * 18}|--------:|-------:|---------:|---------:|-------:|{'-' * 19}:|")
    for name, (first, *_) in traces.items():
        r = first.result
        print(
            f"| {name:16} | {r.seconds:7.2f} | {r.history['monitor_seconds'][-1]:6.2f} | {r.primal:8.5f} | {r.dual:8.5f} "
            f"| {r.gap / r.primal:6.2%} | {first.measures[-1]:16.2f} % |"
        )
    draw_comparison(data, {name: runs[0] for name, runs in traces.items()}, options)


def against(reference, runs, share, checks):
    """The reference's seconds by those of the runs, repeat by repeat; more than its whole run, where it was not long enough."""
    own = np.array([run.seconds(share, checks) for run in runs])
    if not np.isfinite(own).all():
        return "-"
    theirs = np.array([run.seconds(share, checks) for run in reference])
    if np.isfinite(theirs).all():
        return spread(np.resize(theirs, len(own)) / own, ".1f")
    last = reference[0].result
    return f"> {(last.seconds + checks * last.history['monitor_seconds'][-1]) / np.median(own):.1f}"


def draw_comparison(data, traces, options):
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for k, (name, trace) in enumerate(traces.items()):
        h = trace.result.history
        primal, dual = np.minimum.accumulate(h["primal"]), np.maximum.accumulate(h["dual"])
        left.plot(h["seconds"], primal, color=f"C{k}", label=name)
        left.plot(h["seconds"], dual, color=f"C{k}", ls="--")
        right.plot(h["seconds"], trace.measures, color=f"C{k}", marker="o", ms=3, label=name)
    optimum = min(trace.result.primal for trace in traces.values())
    left.set(
        xscale="log", xlabel="seconds, without checks", ylabel="objective", ylim=(0.7 * optimum, 1.4 * optimum),
        title=f"{data.name}: primal (solid) and dual (dashed) of G",
    )  # fmt: skip
    frame(right, traces.values())
    right.set(
        xscale="log", xlabel="seconds, without checks", ylabel=f"test {data.measure} (%)", title="on test examples"
    )
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    save(figure, options, f"compare-{data.name}")


def frame(axes, traces):
    """Show the range of the second half of every run's checks: the first ones would flatten all others."""
    values = np.concatenate([trace.measures[len(trace.measures) // 2 :] for trace in traces])
    room = max(0.4 * np.ptp(values), 0.1)
    axes.set_ylim(values.min() - room, values.max() + room)


# ----------------------------------------------------------------------------------------------------------------- rho


def rho(data, options):
    solvers: dict[str, Any] = {
        f"rho = {value:g}": SoftBCFW(rho=value * data.n_labels, multipliers=False) for value in (0.1, 1.0, 10.0)
    }
    solvers["default"] = SoftBCFW()
    compile_kernels(solvers.values(), data)
    traces = {name: train(solver, data, options, min(SHARES)) for name, solver in solvers.items()}
    bound = traces["default"].result.dual
    print("\na fixed rho without multipliers, in the paper's units, and the default")
    print(
        "(own gap: to the problem solved, soft for a fixed rho; above G*: the hard objective over the best lower bound)\n"
    )
    print(f"| {'':10} | passes | seconds | checks | own gap | hard objective g | above G* | test {data.measure:>13} |")
    print(f"|{'-' * 12}|-------:|--------:|-------:|--------:|-----------------:|---------:|{'-' * 19}:|")
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    for k, (name, trace) in enumerate(traces.items()):
        r, h = trace.result, trace.result.history
        hard = np.minimum.accumulate(h.get("relaxed_primal", h["primal"]))
        print(
            f"| {name:10} | {r.n_passes:6} | {r.seconds:7.2f} | {h['monitor_seconds'][-1]:6.2f} | {r.gap / r.primal:7.2%} "
            f"| {hard[-1]:16.5f} | {hard[-1] / bound - 1.0:8.2%} | {trace.measures[-1]:16.2f} % |"
        )
        color = "black" if name == "default" else f"C{k}"
        left.plot(h["seconds"], hard, color=color, label=f"{name}: g")
        if "relaxed_primal" in h:
            left.plot(h["seconds"], h["primal"], color=color, ls=":", label=f"{name}: soft objective")
        right.plot(h["seconds"], trace.measures, color=color, marker="o", ms=3, label=name)
    left.axhline(bound, color="0.5", ls="--", lw=1, label="lower bound of G*")
    left.set(
        xscale="log", xlabel="seconds, without checks", ylabel="objective", ylim=(0.85 * bound, 1.5 * bound),
        title=f"{data.name}: effect of rho on the objective",
    )  # fmt: skip
    frame(right, traces.values())
    right.set(
        xscale="log", xlabel="seconds, without checks", ylabel=f"test {data.measure} (%)", title="on test examples"
    )
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    save(figure, options, f"rho-{data.name}")


# ---------------------------------------------------------------------------------------------------------------- size


def size(data, options):
    """A fresh part of the examples in each repeat; with all of them the repeats differ by their times alone."""
    compile_kernels((SoftBCFW(), BCFW("graph_cut"), SoftBCFW(rho=1.0, multipliers=False)), data)
    n, columns = data.problem.n_examples, ("soft", "cuts", "soft error", "cuts error", "difference")
    found: dict[int, dict[str, list[float]]] = {}
    print(
        f"\nseconds to a certified gap of 1 %, test {data.measure} there, and g at the soft optimum (rho = 1) above g*\n"
    )
    print(
        f"| examples | {'SoftBCFW: seconds':>20} | {'test (%)':>20} | {'BCFW, cuts: seconds':>20} | {'test (%)':>20} "
        f"| {'g above g* (%)':>20} |"
    )
    print(f"|---------:|{':|'.join(['-' * 21] * 5)}:|")
    for share in PARTS_OF_DATA:
        count = round(share * n)
        lists = found[count] = {name: [] for name in columns}
        for repeat in range(options.repeats):
            chosen = np.sort(np.random.default_rng(repeat).permutation(n)[:count])
            part = data._replace(problem=data.problem.take(chosen))
            for name, solver, to in (("soft", SoftBCFW(), 0.01), ("cuts", BCFW("graph_cut"), 0.001)):
                trace = train(solver, part, options, to)
                at = trace.reached(0.01)
                lists[name].append(trace.seconds(0.01))
                lists[f"{name} error"].append(trace.measures[-1 if at is None else at])
            penalised = train(SoftBCFW(rho=data.n_labels, multipliers=False), part, options, 0.001, look=False)
            # The middle of a certified interval that is 0.1 % wide.
            optimum = trace.result.primal - 0.5 * trace.result.gap
            hard = penalised.result.history["relaxed_primal"][-1]
            lists["difference"].append(100.0 * (hard / optimum - 1.0))
        cells = [spread(lists[name], ".2f") for name in ("soft", "soft error", "cuts", "cuts error", "difference")]
        print(f"| {count:8} | {' | '.join(f'{cell:>20}' for cell in cells)} |", flush=True)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    titles = "seconds to 1 %", f"test {data.measure} (%)", "g at the soft optimum, above g* (%)"
    for one, names, title in zip(
        axes, (("soft", "cuts"), ("soft error", "cuts error"), ("difference",)), titles, strict=True
    ):
        for name in names:
            label = {"soft": "SoftBCFW", "cuts": "BCFW, graph cuts"}.get(name.split()[0], "rho = 1")
            values = np.array([lists[name] for lists in found.values()])
            middle = np.median(values, axis=1)
            bars = np.abs([middle - values.min(axis=1), values.max(axis=1) - middle])
            one.errorbar(list(found), middle, bars, marker="o", ms=4, capsize=3, label=label)
        one.set(xscale="log", xlabel="training examples", title=f"{data.name}: {title}")
        one.set_xticks(list(found), [str(count) for count in found])
        one.minorticks_off()
        one.grid(alpha=0.3)
        one.legend(fontsize=8)
    axes[0].set_yscale("log")
    axes[2].set_ylim(bottom=0.0)
    save(figure, options, f"size-{data.name}")


PARTS = {"compare": compare, "rho": rho, "size": size}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=["compare"])
    parser.add_argument("--data", nargs="+", choices=("yeast", "rcv1"), default=["yeast", "rcv1"])
    parser.add_argument("--figures", type=pathlib.Path, help="directory for the pictures; without it there are none")
    parser.add_argument("--data-home", help="directory of the data sets (default: MAXMARGIN_DATA)")
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of a run, checks and test error included")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--examples", type=int, help="train on the first few only, to try things out")
    options = parser.parse_args()
    for name in options.data:
        data = load(name, options)
        for part in options.part:
            print(f"\n== {part}: {name} ==")
            print(f"{data.problem.n_examples} examples, {data.n_labels} labels, C = {data.C:.4g}", flush=True)
            PARTS[part](data, options)


if __name__ == "__main__":
    main()
