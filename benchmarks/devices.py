"""Batch solvers on a GPU: an oracle call and its parts, seconds to a certified gap, gap against seconds, and size.

    python benchmarks/devices.py [--device cuda] [--part oracle lbfgs one-slack gap size] [--data-home DIR] [--figures DIR]

- *oracle*: one call for all examples, features on the device: marginals and gradient of conll2000 (8,936 sentences, 22 tags) and of
  all 6,251 OCR words, the joint plane of both and of covtype (581,012 rows, 7 classes); of it the products with the features, and
  forward-backward or max-product alone, beside the time that reading the scores and writing the marginals once would take at the
  rate of a copy.
- *lbfgs*: conll2000, the conditional random field at C = n / 2, to a certified gap of 0.1 % of the objective.
- *one-slack*: OCR words, count loss, C = 625.1, to 0.1; covtype, C = 1e4, to 0.001.
- *gap*: excessive gap, exponentiated gradient and extragradient on OCR words: gap against seconds, one picture.
- *size*: conll2000 1, 5 and 20 times, sentences shuffled: a call of the oracle, and the memory that was foreseen and taken.

Seconds are the solver's own, from the first pass; kernels are compiled and features are on the device by then, and what that took
is beside them. With ``--device cpu`` the same solvers run on the processor, for the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from maxmargin.datasets import fetch_conll2000, fetch_covtype, fetch_ocr_letters
from maxmargin.features import TextFeatures
from maxmargin.problems import Features, chain_problem
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import LBFGS, ExcessiveGap, ExponentiatedGradient, Extragradient, OneSlack


def conll2000(home, copies=1):
    """The training sentences, so many times, in random order."""
    sentences, tags = fetch_conll2000(home, "train")
    X = sp.csr_array(TextFeatures.chunking().fit_transform(sentences))
    number = {tag: k for k, tag in enumerate(sorted({tag for one in tags for tag in one}))}
    lengths = np.array([len(one) for one in tags])
    states = np.concatenate([[number[tag] for tag in one] for one in tags]).astype(np.int32)
    if copies > 1:
        order = np.random.default_rng(0).permutation(np.tile(np.arange(len(lengths)), copies))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.concatenate([np.arange(starts[m], starts[m + 1]) for m in order])
        X, states, lengths = X[rows], states[rows], lengths[order]
    return chain_problem(Features(X), states, len(number), boundary=False, lengths=lengths)


def words(home):
    """All OCR words, as SVM-hmm has them: no constant, no boundary."""
    data = fetch_ocr_letters(home, setting="large")
    _, tags = np.unique(data.tags, return_inverse=True)
    return chain_problem(
        Features(data.X), tags.astype(np.int32), 26, boundary=False, loss="count", lengths=data.lengths
    )


def covtype(home):
    """All rows, scaled to [0, 1]."""
    data = fetch_covtype(home)
    X = np.asarray(data.X, np.float64)
    X = (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)
    _, y = np.unique(data.y, return_inverse=True)
    return multi_class_problem(np.ascontiguousarray(X), y, 7)


DATA = {"conll2000": conll2000, "ocr": words, "covtype": covtype}


class Timer:
    """Median, least and most milliseconds of a call on a device."""

    def __init__(self, device, repeats=20):
        import torch

        self.wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
        self.repeats = repeats

    def __call__(self, function):
        function()
        found = []
        for _ in range(self.repeats):
            self.wait()
            started = time.perf_counter()
            function()
            self.wait()
            found.append(1e3 * (time.perf_counter() - started))
        return f"{statistics.median(found):.3f} ({min(found):.3f}-{max(found):.3f}) ms"


def oracle_part(options, problems):
    """A call and its parts."""
    for name in ("conll2000", "ocr", "covtype"):
        oracle_lines(name, problems(name), options)


def oracle_lines(name, problem, options):
    """Those of one data set."""
    import torch

    from maxmargin.solvers.oracles.device_oracle import DeviceOracle

    timed = Timer(options.device)
    started = time.perf_counter()
    oracle = DeviceOracle(problem, options.device)
    made = time.perf_counter() - started
    graphs, inference = oracle.tensors.graphs, oracle.tensors.inference
    w = oracle.working(0.1 * np.random.default_rng(0).normal(size=problem.n_weights))
    theta, tables = graphs.scores(w)
    copied, size = torch.empty_like(theta), theta.nbytes
    print(f"\n{name}: {problem.n_examples} examples, {problem.n_weights} weights, on the device in {made:.2f} s")
    print(f"  joint plane            {timed(lambda: oracle.mean_plane(w, 1))}")
    print(f"  marginals and gradient {timed(lambda: oracle.mean(w, 1.0, 1))}")
    print(f"    scores               {timed(lambda: graphs.scores(w))}")
    print(f"    sum-product          {timed(lambda: inference.marginals(theta, tables, 1.0))}")
    if hasattr(inference, "cold"):
        print(f"    at any temperature   {timed(lambda: inference.cold(theta, tables, 1.0))}")
    print(f"    max-product          {timed(lambda: inference.maximise(theta, tables))}")
    found = inference.marginals(theta, tables, 1.0)
    print(f"    statistics           {timed(lambda: graphs.statistics(found.share, found.tables))}")
    w_v, _ = graphs.split(w)
    share = torch.rand_like(graphs.variable_features.scores(w_v))
    print(f"      X W                {timed(lambda: graphs.variable_features.scores(w_v))}")
    print(f"      X' G               {timed(lambda: graphs.variable_features.sums(share))}")
    print(f"    a copy of the scores {timed(lambda: copied.copy_(theta))}, {size / 1e6:.0f} MB: read and written once")


def report(name, result):
    """A line of a table."""
    print(
        f"  {name:24} {result.seconds:7.3f} s, {result.n_passes} passes, gap {result.gap:.4g} of {result.primal:.6g}, "
        f"{result.certificate}, {result.status.value}"
    )


def lbfgs_part(options, problems):
    """The conditional random field."""
    problem = problems("conll2000")
    C = problem.n_examples / 2
    first = LBFGS(device=options.device).solve(problem, C=C, tol=0.01, max_passes=2000)
    print("\nconll2000, L-BFGS to 0.1 %")
    for _ in range(options.repeats):
        report("lbfgs", LBFGS(device=options.device).solve(problem, C=C, tol=1e-3 * first.dual, max_passes=2000))


def one_slack_part(options, problems):
    """1-slack on words and on rows."""
    for name, C, tol in (("ocr", 625.1, 0.1), ("covtype", 1e4, 0.001)):
        problem = problems(name)
        print(f"\n{name}, 1-slack, C = {C:g}, to {tol:g}")
        for _ in range(options.repeats):
            started = time.perf_counter()
            result = OneSlack(device=options.device).solve(problem, C=C, tol=tol, max_passes=5000)
            report("one-slack", result)
            print(f"  with preparations {time.perf_counter() - started:.2f} s")


def gap_part(options, problems):
    """Gap against seconds of the three solvers by marginals, at two values of C."""
    problem, curves = problems("ocr"), {}
    for C in (62.51, 625.1):
        print(f"\nOCR words, C = {C:g}, solvers by marginals")
        for make in (ExcessiveGap, ExponentiatedGradient, Extragradient):
            found = make(device=options.device).solve(
                problem, C=C, tol=1e-3, max_passes=10**6, max_seconds=options.seconds
            )
            report(make.name, found)
            curves.setdefault(f"{C:g}", {})[make.name] = [
                found.history[name].tolist() for name in ("seconds", "gap", "n_passes")
            ]
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
        (options.figures / "devices-gap.json").write_text(json.dumps(curves))
        draw(curves, options.figures / "devices-gap.png", options.device)


def draw(curves, path, device):
    """The picture of the part *gap*, where there is matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(5.2 * len(curves), 4.2), layout="constrained", sharey=True)
    for axis, (C, lines) in zip(np.atleast_1d(axes), curves.items(), strict=True):
        for name, (seconds, gap, _) in lines.items():
            axis.loglog(seconds, gap, label=name)
        axis.set(xlabel="seconds", title=f"C = {C}")
        axis.grid(alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("certified gap")
    np.atleast_1d(axes)[0].legend()
    figure.suptitle(f"6,251 OCR words, device {device}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def size_part(options, problems):
    """More sentences: is it linear, and is the memory as foreseen?"""
    import torch

    from maxmargin.devices.tensor_graphs import room
    from maxmargin.solvers.oracles.device_oracle import DeviceOracle

    timed = Timer(options.device, 10)
    for copies in (1, 5, 20):
        problem = conll2000(options.data_home, copies)
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        oracle = DeviceOracle(problem, options.device)
        w = oracle.device.zeros(problem.n_weights)
        line = timed(lambda oracle=oracle, w=w: oracle.mean(w, 1.0, 1))
        taken = torch.cuda.max_memory_allocated() if options.device.startswith("cuda") else 0
        print(f"\n{copies} times: {problem.n_examples} sentences, {line}")
        print(f"  foreseen {room(problem) / 1e9:.2f} GB, taken {taken / 1e9:.2f} GB")
        result = LBFGS(device=options.device).solve(problem, C=problem.n_examples / 2, tol=0.01, max_passes=30)
        report("lbfgs, 30 passes", result)
        del oracle


PARTS = {"oracle": oracle_part, "lbfgs": lbfgs_part, "one-slack": one_slack_part, "gap": gap_part, "size": size_part}


def main():
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data-home", type=Path, default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each curve of the part gap")
    options = parser.parse_args()
    kept = {}

    def problems(name):
        if name not in kept:
            kept[name] = DATA[name](options.data_home)
        return kept[name]

    for part in options.part:
        PARTS[part](options, problems)


if __name__ == "__main__":
    main()
