"""Solvers on marginals: passes and seconds to a certified gap, the time of a pass, and conditional random fields beside CRFsuite.

    python benchmarks/marginals.py [--part gap pass crf] [--figures DIR] [--data-home DIR]

- *gap* (table 1 of Zhang, Saha and Vishwanathan, Gap): the methods of the table on Taskar's handwritten words (the 626 words of
  the small setting, 128 pixels and a constant for a letter, 26 letters), for several C. For each: passes and seconds until the
  certified gap is 0.1, 0.01 and 0.001, and the constants of the theory: a bound of max |psi|, log |Y|, the divergence from the
  uniform distribution, and the steps that eq. (22) allows for the gap that was reached, beside those that were made. The picture
  has the gap against calls of the oracle (a pass of extragradient makes two).
- *pass*: milliseconds of a pass of excessive gap reduction and of batch exponentiated gradient, in turns, from the same passes of
  a run.
- *crf*: the log objective on CoNLL 2000 (8,936 sentences, 211,727 words, 22 tags; words and parts of speech in a window), 100
  iterations of L-BFGS here and in CRFsuite (`pip install python-crfsuite`; left out if it is not there), on the same features.
  CRFsuite is asked for all states and transitions, so that both minimise the same function, and once as it comes.

One thread. Seconds are the solver's own, with its free bounds; kernels are compiled before.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets import fetch_conll2000, fetch_ocr_letters
from maxmargin.problems import chain_problem
from maxmargin.problems.features import Features
from maxmargin.solvers import BCFW, BundleMethod
from maxmargin.solvers.excessive_gap import ExcessiveGap
from maxmargin.solvers.exponentiated_gradient import ExponentiatedGradient
from maxmargin.solvers.extragradient import Extragradient
from maxmargin.solvers.lbfgs import LBFGS
from maxmargin.solvers.smo import SMO

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


def letters(data_home):
    data = fetch_ocr_letters(data_home)
    X = np.hstack([data.X, np.ones((len(data.X), 1))])
    tags = np.searchsorted(np.array(list("abcdefghijklmnopqrstuvwxyz")), data.tags)
    cuts = np.cumsum(data.lengths)[:-1]
    return chain_problem(np.split(X, cuts), np.split(tags, cuts), 26)


def gap_part(options):
    problem, curves = letters(options.data_home), {}
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
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(options.C), figsize=(6 * len(options.C), 4.5), squeeze=False)
    for axis, C in zip(axes[0], options.C, strict=True):
        for name in SOLVERS:
            calls, gap = curves[C, name]
            axis.loglog(calls, gap, label=name)
        axis.set(title=f"C = {C:g}", xlabel="calls of the oracle for each word", ylabel="certified gap")
    axes[0, 0].legend(fontsize="small")
    figure.tight_layout()
    pathlib.Path(options.figures).mkdir(parents=True, exist_ok=True)
    figure.savefig(pathlib.Path(options.figures) / "marginals.png", dpi=120)


def pass_part(options):
    problem = letters(options.data_home)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["gap", "pass", "crf"], choices=["gap", "pass", "crf"])
    parser.add_argument("--C", nargs="+", type=float, default=[1.0, 100.0])
    parser.add_argument("--passes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--figures")
    parser.add_argument("--data-home")
    options = parser.parse_args()
    for part in options.part:
        print(f"\n{part}")
        {"gap": gap_part, "pass": pass_part, "crf": crf_part}[part](options)


if __name__ == "__main__":
    main()
