"""Solvers on marginals: rates, time to a certified gap beside all other solvers, kernels, and conditional random fields.

    python benchmarks/marginals.py [--part gap rates pass times kernel crf] [--figures DIR] [--data-home DIR]

- *gap* (table 1 of Zhang, Saha and Vishwanathan, Gap): the methods of the table on Taskar's handwritten words (the 626 words of
  the small setting, 128 pixels and a constant for a letter, 26 letters), for several C. For each: passes and seconds until the
  certified gap is 0.1, 0.01 and 0.001, and the constants of the theory: a bound of max |psi|, log |Y|, the divergence from the
  uniform distribution, and the steps that eq. (22) allows for the gap that was reached, beside those that were made. The picture
  has the gap against calls of the oracle (a pass of extragradient makes two).
- *rates*: the gap against iterations on the same words and on chains that are drawn at random, the slope of a line through the last
  decade of iterations on log axes (1 / k^2 has the slope -2), and the largest share of the iterations that eq. (22) allows.
- *pass*: milliseconds of a pass of excessive gap reduction and of batch exponentiated gradient, in turns, from the same passes of
  a run.
- *times*: seconds, checks included, to a certified gap of 0.01 and 0.001 of every solver that certifies one, on the words (626 and
  6,251 of them) and on CoNLL 2000 (`TextFeatures.chunking()`); the fastest, and how far from it is what "auto" takes.
- *kernel*: excessive gap reduction on 1000 of the words, linear and with two kernels; C is chosen with `bcfw`, by a third of the
  words held out; test error on 1000 others.
- *crf*: the log objective on CoNLL 2000 (8,936 sentences, 211,727 words, 22 tags; words and parts of speech in a window), 100
  iterations of L-BFGS here and in CRFsuite (`pip install python-crfsuite`; left out if it is not there), on the same features.
  CRFsuite is asked for all states and transitions, so that both minimise the same function, and once as it comes.

One thread. Seconds are the solver's own, with its free bounds; kernels are compiled before.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from ocr import in_training, load, problem_of

from maxmargin import ChainSVM
from maxmargin.datasets import fetch_conll2000
from maxmargin.errors import MaxMarginError
from maxmargin.features import TextFeatures
from maxmargin.problems import chain_problem
from maxmargin.problems.features import Features
from maxmargin.solvers import BCFW, BundleMethod, choose_solver
from maxmargin.solvers import SOLVERS as ALL
from maxmargin.solvers.marginals.excessive_gap import ExcessiveGap
from maxmargin.solvers.marginals.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.marginals.extragradient import Extragradient
from maxmargin.solvers.marginals.lbfgs import LBFGS
from maxmargin.solvers.marginals.smo import SMO

GAPS = (0.1, 0.01, 0.001)
SOLVERS = {
    "bundle method": BundleMethod(),
    "extragradient": Extragradient(),
    "exponentiated gradient, batch": ExponentiatedGradient(online=False),
    "exponentiated gradient, online": ExponentiatedGradient(online=True),
    "SMO": SMO(),
    "excessive gap, safe L": ExcessiveGap(constant="safe"),
    "excessive gap": ExcessiveGap(),
    "bcfw": BCFW(),
}


#: Those whose rates are known.
RATES = {
    "excessive gap": ExcessiveGap(),
    "excessive gap, safe L": ExcessiveGap(constant="safe"),
    "exponentiated gradient": ExponentiatedGradient(online=False),
    "extragradient": Extragradient(),
    "bundle method": BundleMethod(),
}


def letters(options, setting="small"):
    words = load(options.data_home)
    return problem_of(words, in_training(words, setting))


def synthetic():
    """500 chains of 10 to 20 positions, 8 tags with a mean of 20 features each and a preference for the next tag."""
    rng = np.random.default_rng(0)
    means, follows = rng.normal(size=(8, 20)), rng.dirichlet(np.full(8, 0.5), size=8)
    X, y = [], []
    for length in rng.integers(10, 21, 500):
        tags = [int(rng.integers(8))]
        while len(tags) < length:
            tags.append(int(rng.choice(8, p=follows[tags[-1]])))
        y.append(np.array(tags))
        X.append(means[tags] + 2.0 * rng.normal(size=(length, 20)))
    return chain_problem(X, y, 8)


def sentences(options):
    words, tags = fetch_conll2000(options.data_home)
    names = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
    X = TextFeatures.chunking().fit_transform(words)
    states = [np.array([names[tag] for tag in one]) for one in tags]
    return chain_problem(Features(X), states, len(names), lengths=[len(one) for one in words])


def gap_part(options):
    problem, curves = letters(options), {}
    for C in options.C:
        print(f"\nC = {C:g}: passes (seconds) to a certified gap of {', '.join(map(str, GAPS))}; the gap at the end")
        for name, solver in SOLVERS.items():
            result = solver.solve(problem, C, tol=GAPS[-1], max_passes=options.passes, max_seconds=options.seconds)
            history, cells = result.history, []
            for gap in GAPS:
                there = np.flatnonzero(history["gap"] <= gap)
                k = there[0] if len(there) else -1
                cells.append(f"{history['n_passes'][k]:.0f} ({history['seconds'][k]:.2f})" if len(there) else "-")
            print(f"{name:32s}" + "".join(f"{cell:>16s}" for cell in cells) + f"   {result.gap:.2g}", flush=True)
            curves[C, name] = history["n_oracle_calls"] / problem.n_examples, history["gap"]
            if solver.name == "excessive-gap":
                o = result.options
                print(
                    f"{'':32s}  |psi| <= {o['psi_bound']:.4g}, log |Y| = {o['log_labelings']:.4g}, KL <= {o['kl_to_uniform']:.4g}; "
                    f"{o['n_steps']} steps and {o['n_failed']} done again, eq. (22): {o['bound_by_log_labelings']:.3g}"
                )
    if options.figures:
        picture(curves, options)


def picture(curves, options):
    figure, axes = plt.subplots(1, len(options.C), figsize=(6 * len(options.C), 4.5), squeeze=False)
    for axis, C in zip(axes[0], options.C, strict=True):
        for name in SOLVERS:
            calls, gap = curves[C, name]
            axis.loglog(calls, gap, label=name)
        axis.set(title=f"C = {C:g}", xlabel="calls of the oracle for each word", ylabel="certified gap")
    axes[0, 0].legend(fontsize="small")
    save(figure, options, "marginals")


def save(figure, options, name):
    if options.figures:
        pathlib.Path(options.figures).mkdir(parents=True, exist_ok=True)
        figure.tight_layout()
        figure.savefig(pathlib.Path(options.figures) / f"{name}.png", dpi=120)
    plt.close(figure)


def rates_part(options):
    problems = {"626 words": letters(options), "chains at random": synthetic()}
    figure, axes = plt.subplots(len(problems), len(options.C), figsize=(6 * len(options.C), 9), squeeze=False)
    print(f"{'':18s}{'C':>6s}  {'':24s}{'iterations':>11s}{'gap':>10s}{'slope':>7s}   of eq. (22)")
    for row, (title, problem) in zip(axes, problems.items(), strict=True):
        for axis, C in zip(row, options.C, strict=True):
            for color, (name, solver) in enumerate(RATES.items()):
                result = solver.solve(problem, C, tol=1e-6, max_passes=options.passes, max_seconds=options.seconds)
                k, gap = result.history["n_passes"], result.history["gap"]
                last = (k >= k[-1] / 10.0) & (gap > 0.0)
                slope, level = np.polyfit(np.log(k[last]), np.log(gap[last]), 1)
                share = ""
                if solver.name == "excessive-gap":
                    o = result.options
                    allowed = 2.0 + o["psi_bound"] * np.sqrt(6.0 * o["log_labelings"] * C / np.maximum(gap, 1e-300))
                    share = f"{(k / allowed).max():10.3f}"
                print(f"{title:18s}{C:6g}  {name:24s}{k[-1]:11.0f}{gap[-1]:10.2g}{slope:7.2f}   {share}", flush=True)
                axis.loglog(k, gap, color=f"C{color}", label=f"{name}, {slope:.2f}")
                axis.loglog(k[last], np.exp(level) * k[last] ** slope, ":", color=f"C{color}")
            axis.set(title=f"{title}, C = {C:g}", xlabel="iterations", ylabel="certified gap")
            axis.legend(fontsize="small", title="slope of the last decade", loc="upper right")
    save(figure, options, "rates")


def pass_part(options):
    problem = letters(options)
    runs = [solver.make_run(problem, 0.01, 0, 1) for solver in (ExcessiveGap(), ExponentiatedGradient(online=False))]
    states, seconds = [run.begin(None) for run in runs], np.zeros((2, 300))
    for k in range(seconds.shape[1]):
        for i, (run, now) in enumerate(zip(runs, states, strict=True)):
            clock = time.process_time()
            run.one_pass(now, lambda: False)
            seconds[i, k] = time.process_time() - clock
    for first, last in ((0, 10), (10, 50), (50, 150), (150, 300)):
        gap, gradient = 1000.0 * np.median(seconds[:, first:last], axis=1)
        print(
            f"passes {first:3d} to {last:3d}: excessive gap {gap:.2f} ms, exponentiated gradient {gradient:.2f} ms, "
            f"ratio {gap / gradient:.2f}"
        )


def times_part(options):
    makers = {
        "626 words": lambda: letters(options),
        "6251 words": lambda: letters(options, "large"),
        "CoNLL 2000": lambda: sentences(options),
    }
    chosen = {title: makers[title] for title in makers if title.split()[0].lower() in options.data}
    figure, axes = plt.subplots(1, len(chosen), figsize=(6 * len(chosen), 5), squeeze=False)
    for axis, (title, maker) in zip(axes[0], chosen.items(), strict=True):
        problem = maker()
        C, limit = options.margin_C, options.seconds * (2.0 if title == "CoNLL 2000" else 1.0)
        print(f"\n{title}, C = {C:g}: seconds with checks to a certified gap of 0.01 and 0.001, within {limit:g} s")
        found = {}
        for name, solver in ALL.items():
            if "margin" not in getattr(solver, "objectives", ("margin",)):
                print(f"{name:24s}  left out: it is for another objective")
                continue
            try:
                # A few examples first: kernels are compiled before the clock starts, and it shows who certifies something.
                if solver().solve(problem.take(np.arange(10)), C, max_passes=2).certificate != "exact":
                    print(f"{name:24s}  left out: it certifies nothing")
                    continue
                result = solver().solve(problem, C, tol=GAPS[-1], max_passes=10**6, max_seconds=limit)
            except MaxMarginError as error:
                print(f"{name:24s}  left out: {error}")
                continue
            seconds, gap = result.history["seconds"] + result.history["monitor_seconds"], result.history["gap"]
            found[name] = [seconds[gap <= one][0] if (gap <= one).any() else np.inf for one in GAPS[1:]]
            cells = "".join(f"{one:10.2f}" if np.isfinite(one) else f"{'-':>10s}" for one in found[name])
            print(f"{name:24s}{cells}   gap at the end {result.gap:.2g}", flush=True)
            axis.loglog(seconds, gap, label=name, ls="-" if len(found) <= 6 else "--")
        auto = choose_solver(problem).name
        for k, goal in enumerate(GAPS[1:]):
            best = min(found, key=lambda name, k=k: found[name][k])
            print(
                f"to {goal:g}: {best} is the fastest; auto is {auto}, {found[auto][k] / found[best][k]:.2f} times its seconds"
            )
        axis.set(title=f"{title}, C = {C:g}", xlabel="seconds, with checks", ylabel="certified gap", ylim=(3e-4, 20.0))
        axis.axhline(0.01, color="gray", lw=0.5)
        axis.axhline(0.001, color="gray", lw=0.5)
        axis.legend(fontsize="small", loc="lower left")
    save(figure, options, "times")


def kernel_part(options):
    X, y, _ = load(options.data_home)
    order = np.random.default_rng(0).permutation(len(X))[:2000]
    train, test = np.split(order, 2)
    part, held_out = train[333:], train[:333]

    def some(chosen):
        # The last column is a constant, which models have of their own.
        return [X[m][:, :-1] for m in chosen], [y[m] for m in chosen]

    def fit(chosen, tol, solver, **setting):
        model = ChainSVM(solver=solver, tol=tol, max_passes=10**5, max_seconds=5.0 * options.seconds, **setting)
        return model.fit(*some(chosen))

    for title, setting, Cs in (
        ("linear", {}, (10.0, 30.0, 100.0)),
        ("polynomial of degree 2", {"kernel": "poly", "degree": 2}, (3.0, 10.0, 30.0, 100.0)),
        ("rbf", {"kernel": "rbf"}, (30.0, 100.0, 300.0)),
    ):
        _, C = min((1.0 - fit(part, 0.03, "bcfw", C=C, **setting).score(*some(held_out)), C) for C in Cs)
        model = fit(train, options.kernel_tol, "excessive-gap", C=C, **setting)
        print(
            f"{title:24s} C = {C:g}: test error {100.0 * (1.0 - model.score(*some(test))):.2f} %; {model.result_.summary()}",
            flush=True,
        )


def attributes(sentence):
    """Words and parts of speech in a window of two, and their neighbours in pairs."""
    out = []
    for t in range(len(sentence)):
        own = []
        for d in range(-2, 3):
            if 0 <= t + d < len(sentence):
                own += [f"w{d}={sentence[t + d][0]}", f"p{d}={sentence[t + d][1]}"]
                if d < 2 and t + d + 1 < len(sentence):
                    own.append(f"pp{d}={sentence[t + d][1]}|{sentence[t + d + 1][1]}")
                    if d in (-1, 0):
                        own.append(f"ww{d}={sentence[t + d][0]}|{sentence[t + d + 1][0]}")
                if d < 1 and t + d + 2 < len(sentence):
                    own.append(f"ppp{d}={'|'.join(part for _, part in sentence[t + d : t + d + 3])}")
        out.append([*own, "1"])
    return out


def crf_part(options):
    sentences, tags = fetch_conll2000(options.data_home)
    lists = [attributes(one) for one in sentences]
    flat = [token for one in lists for token in one]
    columns: dict[str, int] = {}
    indices = np.array([columns.setdefault(name, len(columns)) for token in flat for name in token], np.int32)
    starts = np.concatenate([[0], np.cumsum([len(token) for token in flat])])
    names = sorted({tag for one in tags for tag in one})
    X = sp.csr_array((np.ones(len(indices)), indices, starts), (len(flat), len(columns)))
    y = [np.array([names.index(tag) for tag in one]) for one in tags]
    problem = chain_problem(Features(X), y, len(names), False, lengths=[len(one) for one in tags])
    print(
        f"{len(tags)} sentences, {len(flat)} words, {len(names)} tags, {len(indices) / len(flat):.1f} features a word, "
        f"{len(columns)} different; {problem.n_weights} weights"
    )
    # Beside c2 = 1 of a sum over examples stands lam = 2 / M of their mean.
    clock = time.perf_counter()
    result = LBFGS().solve(problem, problem.n_examples / 2.0, tol=0.0, max_passes=100)
    print(
        f"maxmargin: {time.perf_counter() - clock:.1f} s for 100 passes, objective {result.primal * problem.n_examples:.3f}, "
        f"at least {result.dual * problem.n_examples:.3f}"
    )
    try:
        import pycrfsuite
    except ImportError:
        return
    for title, everything in (("all weights", True), ("as it comes", False)):
        trainer, log = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False), []
        trainer.message = lambda line, log=log: log.append(line)
        trainer.set_params(
            {
                "c1": 0.0, "c2": 1.0, "max_iterations": 100, "epsilon": 0.0, "delta": 0.0,
                "feature.possible_states": everything, "feature.possible_transitions": everything,
            }
        )  # fmt: skip
        for xseq, yseq in zip(lists, tags, strict=True):
            trainer.append(xseq, yseq)
        with tempfile.TemporaryDirectory() as folder:
            clock = time.perf_counter()
            trainer.train(str(pathlib.Path(folder) / "model"))
            seconds = time.perf_counter() - clock
        last = trainer.logparser.iterations[-1] if trainer.logparser.iterations else {}
        print(f"CRFsuite, {title}: {seconds:.1f} s, {last.get('num')} iterations, objective {last.get('loss')}")


PARTS = {
    "gap": gap_part,
    "rates": rates_part,
    "pass": pass_part,
    "times": times_part,
    "kernel": kernel_part,
    "crf": crf_part,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--C", nargs="+", type=float, default=[1.0, 100.0], help="of gap and rates")
    parser.add_argument("--margin-C", type=float, default=100.0, help="of times")
    parser.add_argument("--data", nargs="+", default=["626", "6251", "conll"], help="of times")
    parser.add_argument("--kernel-tol", type=float, default=0.05, help="gap of kernel")
    parser.add_argument("--passes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a run; twice as much for CoNLL 2000")
    parser.add_argument("--figures")
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    options = parser.parse_args()
    if options.data_home is None:
        parser.error("give --data-home, or set MAXMARGIN_DATA; it holds ocr-letters and conll2000")
    for part in options.part:
        print(f"\n{part}")
        PARTS[part](options)


if __name__ == "__main__":
    main()
