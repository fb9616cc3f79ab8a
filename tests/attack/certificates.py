"""Random certified runs over many scales, each bound checked by enumeration in extended precision.

A run is *false* if one of these does not hold, P being evaluated here, with all labelings written out, in long double:

    primal >= P(weights)                  the weights returned are as good as is said
    dual <= P(w)                          for the weights w of every solver on the same problem, and for w = 0
    dual <= primal, gap = primal - dual   and CONVERGED only if 0 <= gap <= tol and something was certified

For the relaxed certificate P is that of the local marginal polytope, whose vertices are half-integral where variables are binary
and factors are pairs: those vertices are enumerated.

``python tests/attack/certificates.py --problems 150`` prints how many runs there were and how many were false (status 1 if any).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np

from maxmargin.errors import MaxMarginError
from maxmargin.problems import label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.solvers import (
    BCFW,
    DLPW,
    SMO,
    BundleMethod,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    NSlack,
    OneSlack,
    Perceptron,
    SoftBCFW,
    Status,
    Subgradient,
)
from reference.enumerated_program import planes

LONG = np.longdouble
#: A bound may miss the truth by this much, in units of the largest of 1 and the values compared.
ROUNDING = 1e-12

SOLVERS = {
    "bcfw": BCFW(),
    "bcfw, pairwise": BCFW(steps="pairwise"),
    "bcfw, joint": BCFW(steps="joint", batch=3),
    "bcfw, plain": BCFW.plain(),
    "bundle": BundleMethod(),
    "dlpw": DLPW(),
    "excessive-gap": ExcessiveGap(),
    "exponentiated-gradient": ExponentiatedGradient(),
    "extragradient": Extragradient(),
    "frank-wolfe": FrankWolfe(),
    "n-slack": NSlack(),
    "one-slack": OneSlack(),
    "one-slack, cache": OneSlack(cache=3),
    "one-slack, as SVM-struct": OneSlack(stop="svm-struct"),
    "perceptron": Perceptron(),
    "smo": SMO(),
    "soft-bcfw": SoftBCFW(),
    "subgradient": Subgradient(),
}


@dataclass
class Case:
    """A problem, its scale and C, and all its planes in long double."""

    words: str
    graphs: object
    C: float
    tol: float
    exact: list
    relaxed: list | None

    def value(self, w, certificate):
        """P(w) in long double."""
        every = self.relaxed if certificate == "relaxed" else self.exact
        w = np.asarray(w, LONG)
        weight = np.asarray(self.graphs.arrays.weight, LONG)
        hinges = np.array([(ell - psi @ w).max() for psi, ell in every], LONG)
        return w @ w / (2 * LONG(self.C)) + (weight * hinges).sum() / len(every)


def random_case(rng) -> Case:
    """A small problem whose features have a scale from 1e-8 to 1e8, and C from 1e-4 to 1e6."""
    kind = str(rng.choice(["two classes", "classes", "tree of labels", "labels", "chains"]))
    n, p = int(rng.integers(3, 12)), int(rng.integers(1, 5))
    scale, C, tol = 10.0 ** rng.uniform(-8, 8), 10.0 ** rng.uniform(-4, 6), 10.0 ** rng.uniform(-6, -2)
    columns = 10.0 ** rng.uniform(-3, 3, p) if rng.random() < 0.3 else np.ones(p)
    weights = rng.random(n) + 0.5 if rng.random() < 0.5 else None

    def rows(count):
        x = rng.normal(size=(count, p)) * columns * scale
        return np.column_stack([x, np.ones(count)]) if rng.random() < 0.3 else x

    if kind == "two classes":
        graphs = binary_problem(rows(n), rng.integers(0, 2, n), sample_weight=weights)
    elif kind == "classes":
        graphs = multi_class_problem(rows(n), rng.integers(0, 4, n), 4, sample_weight=weights)
    elif kind == "chains":
        lengths = rng.integers(1, 4, n)
        x = rows(int(lengths.sum()))
        cuts = np.cumsum(lengths)[:-1]
        graphs = chain_problem(np.split(x, cuts), np.split(rng.integers(0, 3, len(x)), cuts), 3, sample_weight=weights)
    else:
        Y = rng.integers(0, 2, (n, 3))
        edges = label_edges("tree" if kind == "tree of labels" else "full", Y)
        graphs = multi_label_problem(rows(n), Y, edges, 3, "hamming", weights)
    every = [(np.array([a for a, _ in m], LONG), np.array([b for _, b in m], LONG)) for m in planes(graphs, dtype=LONG)]
    relaxed = None if graphs.is_forest else half_integral(graphs, every)
    return Case(f"{kind}, n = {n}, scale {scale:.1e}, C = {C:.1e}, tol {tol:.1e}", graphs, C, tol, every, relaxed)


def half_integral(graphs, every):
    """Planes of the vertices of the local polytope: an open label is half on, and open pairs are all equal or all different.

    Labels are binary and pairs have a weight for (1, 1) alone, so a vertex's features are linear in its marginals.
    """
    out = []
    pairs = graphs.structures[0].scopes
    n_labels = len(graphs.structures[0].variable_templates)
    cut = graphs.n_variable_blocks * graphs.variable_features.shape[1]
    x = np.asarray(graphs.variable_features.matrix(), LONG)
    for m, (_, exact_ell) in enumerate(every):
        truth = graphs.labels[n_labels * m :][:n_labels]
        loss = np.asarray(graphs.arrays.losses[2 * n_labels * m :][: 2 * n_labels], LONG).reshape(n_labels, 2)
        psi, ell = [], []
        for marginal in itertools.product([LONG(0), LONG(0.5), LONG(1)], repeat=n_labels):
            open_pairs = [c for c, (i, j) in enumerate(pairs) if marginal[i] == 0.5 and marginal[j] == 0.5]
            for choice in itertools.product([LONG(0), LONG(0.5)], repeat=len(open_pairs)):
                both = [marginal[i] * marginal[j] for i, j in pairs]
                for c, value in zip(open_pairs, choice, strict=True):
                    both[c] = value
                change = np.array([truth[i] - marginal[i] for i in range(n_labels)], LONG)
                of_pairs = [truth[i] * truth[j] - both[c] for c, (i, j) in enumerate(pairs)]
                one = np.zeros(graphs.n_weights, LONG)
                one[:cut] = np.outer(change, x[m]).ravel()
                one[cut:] = of_pairs
                psi.append(one)
                ell.append(sum(loss[i, 0] * (1 - marginal[i]) + loss[i, 1] * marginal[i] for i in range(n_labels)))
        out.append((np.array(psi, LONG), np.array(ell, LONG)))
        assert max(ell) >= exact_ell.max() - 1e-12
    return out


def attack(case: Case, solvers=None, max_passes: int = 60, seed: int = 0):
    """Run the solvers; returns (runs, refusals, sentences about false bounds)."""
    results, refused, false = {}, 0, []
    for name, solver in (solvers or SOLVERS).items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results[name] = solver.solve(
                    case.graphs, case.C, tol=case.tol, max_passes=max_passes, max_seconds=10.0, random_state=seed
                )
        except MaxMarginError:
            refused += 1
    zero = np.zeros(case.graphs.n_weights)
    best = {}
    for certificate in ("exact", "relaxed") if case.relaxed else ("exact",):
        of = [case.value(one.weights, certificate) for one in results.values() if np.isfinite(one.weights).all()]
        best[certificate] = min([case.value(zero, certificate), *of])
    for name, one in results.items():
        kind = "relaxed" if one.certificate == "relaxed" else "exact"
        said = [f"{case.words}: {name} ({one.status}, {one.certificate})"]
        if not np.isfinite(one.weights).all():
            false.append([*said, "weights that are not finite"])
            continue
        true = case.value(one.weights, kind)
        room = ROUNDING * max(1.0, abs(float(best[kind])))
        if one.certificate != "none" and not one.primal >= true - ROUNDING * max(1.0, abs(float(true))):
            false.append([*said, f"primal {one.primal!r} is below P(weights) by {float(true - one.primal):.3e}"])
        if one.certificate != "none" and not one.dual <= best[kind] + room:
            false.append([*said, f"dual {one.dual!r} is above the optimum by {float(one.dual - best[kind]):.3e}"])
        if not one.gap >= 0.0:
            false.append([*said, f"gap {one.gap!r}"])
        converged = one.certificate != "none" and 0.0 <= one.gap <= case.tol
        if (one.status is Status.CONVERGED) and not converged:
            false.append([*said, f"CONVERGED at a gap of {one.gap!r}"])
    return results, refused, [": ".join(words) for words in false]


def main() -> int:
    """Attack, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", type=int, default=60)
    arguments = parser.parse_args()
    runs = refused = 0
    false: list[str] = []
    status: Counter = Counter()
    started = time.perf_counter()
    for k in range(arguments.problems):
        results, more, found = attack(
            random_case(np.random.default_rng([arguments.seed, k])), None, arguments.passes, k
        )
        runs, refused = runs + len(results), refused + more
        status.update(str(one.status) for one in results.values())
        false += [f"problem {k}: {sentence}" for sentence in found]
    print(*false, sep="\n")
    print(f"{runs} runs on {arguments.problems} problems, {refused} refusals, {len(false)} false")
    print(dict(status), f"{time.perf_counter() - started:.0f} s")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
