"""The quadratic programs of cutting-plane training: our solver beside others, on programs recorded from real training.

    python benchmarks/quadratic.py --record DIR [--data-home DIR]      # some minutes; writes DIR/<name>.npz
    python benchmarks/quadratic.py --compare DIR

*record* runs a plain 1-slack loop (cutting.py) that keeps every plane, to a gap of --share of the primal value or
--planes planes: chains of letters (fold 0, number of wrong letters), 20,000 rows of covtype, reuters, and Yeast with all pairs of
labels. A recording is the Gram matrix of the planes in the order they came, their constants and kappa = C: the programs of the
run are its leading blocks.

*compare* replays them. From one program to the next the active set, as in training, starts from the last answer with a zero
appended; so do pairwise steps, which stop after --steps. Every --every-th program (more often among the first) also goes to the
active set from scratch, and to Clarabel, HiGHS, DAQP, PIQP and OSQP where they are installed, all of permissive licences, one
after the other; making their matrices is outside their clocks. Peers are asked for 1e-9 (OSQP for 1e-6, which its polishing
refines), ours for a gap of 1e-8 of the largest constant. An answer is made feasible (negative masses to 0, sum to 1) and its gap,
which certifies it, is computed in NumPy and given in units of the largest constant. A failure is a status that is not success, a
violation of the constraints above 1e-6, or a gap above 1e-6.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import pathlib
import time

import numpy as np
import scipy.sparse as sp

from maxmargin.jit import kernel
from maxmargin.solvers.planes.arena import Arena, improve_block
from maxmargin.solvers.planes.simplex_qp import solve_simplex_qp

#: In units of the largest constant: what ours is asked for, and what counts as a failure.
TOLERANCE, FAILURE = 1e-8, 1e-6
EDGES = (2, 20, 50, 100, 200, 500, 2001)
#: A peer that took longer than this for a program is not asked again for a larger one of the recording.
LIMIT = 5.0


# -------------------------------------------------------------------------------------------------------------- record


def recordings(home):
    """Name, problem and C of each recording, one at a time."""
    from auto import covtype
    from ocr import load, problem_of

    from maxmargin.datasets import fetch_binary, fetch_yeast
    from maxmargin.problems import binary_problem, label_edges, multi_label_problem

    words = load(home)
    letters = problem_of(words, words[2] == 0, loss="count")
    for C in (10.0, 100.0, 1000.0):
        yield f"letters-{C:g}", letters, C
    reuters = fetch_binary("reuters", home)
    for C in (100.0, 10_000.0):
        yield f"reuters-{C:g}", binary_problem(reuters.X, reuters.y > 0), C
    yeast = fetch_yeast(home, "train")
    for C in (10.0, 100.0):
        yield f"yeast-{C:g}", multi_label_problem(yeast.X, yeast.Y, label_edges("full", yeast.Y), 14, loss="count"), C
    types, _ = covtype(home)
    for C in (10.0, 1000.0):
        yield f"covtype-{C:g}", types, C


def record(options):
    from maxmargin.solvers.oracles.max_oracle import oracle_of

    options.record.mkdir(parents=True, exist_ok=True)
    for name, problem, C in recordings(pathlib.Path(options.data_home)):
        oracle, start = oracle_of(problem), time.perf_counter()
        psi, gram = np.zeros((options.planes, oracle.n_weights)), np.zeros((options.planes, options.planes))
        ell, alpha = np.zeros(options.planes), np.zeros(options.planes)
        alpha[0] = 1.0
        n, inside, best = 1, 0.0, np.inf
        while n < options.planes:
            w = C * (alpha[:n] @ psi[:n])
            plane = oracle.mean_plane(w, 1)
            found = plane.dense(len(w))
            norm = w @ w / (2.0 * C)
            best = min(best, norm + plane.ell - w @ found)
            if best - (alpha[:n] @ ell[:n] - norm) <= options.share * best:
                break
            psi[n], ell[n] = found, plane.ell
            gram[n, : n + 1] = gram[: n + 1, n] = psi[: n + 1] @ found
            n += 1
            clock = time.perf_counter()
            solve_simplex_qp(gram, n, ell, C, alpha, TOLERANCE * ell.max())
            inside += time.perf_counter() - clock
        gap = (best - (alpha[:n] @ ell[:n] - norm)) / best
        np.savez(options.record / f"{name}.npz", gram=gram[:n, :n], ell=ell[:n], kappa=C)
        print(
            f"{name:16} {n:5} planes, {(alpha > 0).sum():4} with mass, gap {gap:8.1e}, {time.perf_counter() - start:7.1f} s, "
            f"of which programs {inside:7.2f} s",
            flush=True,
        )


# -------------------------------------------------------------------------------------------------------------- solvers


def pairwise(gram, n, ell, kappa, alpha, tol, max_steps):
    """Pairwise steps of the largest difference in slope, with the block step of planes/arena.py."""
    store = Arena.empty(1, 1, 0)._replace(
        n_planes=np.array([n], np.int32), capacity=np.array([len(gram)], np.int32), alpha=alpha, products=gram.ravel()
    )
    steps(store, ell, kappa, tol, max_steps)


@kernel
def steps(store, ell, kappa, tol, max_steps):
    n, alpha, gram, width = store.n_planes[0], store.alpha, store.products, store.capacity[0]
    v, moved = ell[:n].copy(), np.empty(n)
    for b in range(n):
        if alpha[b] > 0.0:
            for a in range(n):
                v[a] -= kappa * alpha[b] * gram[b * width + a]
    improve_block(store, 0, kappa, v, moved, tol, max_steps)


class Peer:
    """A solver of `min 1/2 x'Px + q.x` over the simplex: `prepare` outside the clock, `solve` inside; returns x or None."""

    package = ""

    def prepare(self, P, q):
        self.P, self.q = P, q


class Clarabel(Peer):
    package = "clarabel"

    def prepare(self, P, q):
        import clarabel

        n = len(q)
        self.settings = clarabel.DefaultSettings()
        self.settings.verbose = False
        self.settings.tol_gap_abs = self.settings.tol_gap_rel = self.settings.tol_feas = 1e-9
        self.data = (
            sp.csc_matrix(np.triu(P)), q, sp.vstack([np.ones((1, n)), -sp.eye(n)]).tocsc(), np.eye(1, n + 1)[0],
            [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)],
        )  # fmt: skip
        self.make = clarabel.DefaultSolver

    def solve(self):
        found = self.make(*self.data, self.settings).solve()
        return np.array(found.x), str(found.status) == "Solved"


class Highs(Peer):
    package = "highspy"

    def prepare(self, P, q):
        import highspy

        n = len(q)
        self.solver, self.optimal = highspy.Highs(), highspy.HighsModelStatus.kOptimal
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
        self.solver.setOptionValue("dual_feasibility_tolerance", 1e-9)
        self.solver.setOptionValue("time_limit", LIMIT)
        model = highspy.HighsModel()
        model.lp_.num_col_, model.lp_.num_row_ = n, 1
        model.lp_.col_cost_, model.lp_.col_lower_, model.lp_.col_upper_ = q, np.zeros(n), np.full(n, highspy.kHighsInf)
        model.lp_.row_lower_ = model.lp_.row_upper_ = np.ones(1)
        model.lp_.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.lp_.a_matrix_.start_, model.lp_.a_matrix_.index_ = np.array([0, n]), np.arange(n)
        model.lp_.a_matrix_.value_ = np.ones(n)
        lower = sp.csc_matrix(np.tril(P))
        model.hessian_.dim_, model.hessian_.format_ = n, highspy.HessianFormat.kTriangular
        model.hessian_.start_, model.hessian_.index_, model.hessian_.value_ = lower.indptr, lower.indices, lower.data
        self.solver.passModel(model)

    def solve(self):
        self.solver.run()
        return np.array(self.solver.getSolution().col_value), self.solver.getModelStatus() == self.optimal


class Daqp(Peer):
    package = "daqp"

    def solve(self):
        import daqp

        n = len(self.q)
        upper, lower, sense = np.full(n + 1, 1e30), np.zeros(n + 1), np.zeros(n + 1, np.int32)
        upper[n] = lower[n] = 1.0
        sense[n] = 5
        x, _, status, _ = daqp.solve(
            self.P, self.q, np.ones((1, n)), upper, lower, sense, primal_tol=1e-9, time_limit=LIMIT
        )
        return np.array(x), status == 1


class Piqp(Peer):
    package = "piqp"

    def solve(self):
        import piqp

        n, solver = len(self.q), piqp.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-9
        solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = 1e-9
        solver.setup(
            np.asfortranarray(self.P), self.q, np.ones((1, n), order="F"), np.ones(1), x_l=np.zeros(n), x_u=np.ones(n)
        )
        return (np.array(solver.result.x), False) if solver.solve() != piqp.PIQP_SOLVED else (solver.result.x, True)


class Osqp(Peer):
    package = "osqp"

    def prepare(self, P, q):
        import osqp

        n = len(q)
        self.solver, self.solved = osqp.OSQP(), osqp.SolverStatus.OSQP_SOLVED
        self.data = sp.csc_matrix(np.triu(P)), q, sp.vstack([np.ones((1, n)), sp.eye(n)]).tocsc()
        self.bounds = np.eye(1, n + 1)[0], np.ones(n + 1)

    def solve(self):
        self.solver.setup(
            *self.data, *self.bounds, verbose=False, eps_abs=1e-6, eps_rel=1e-6, polishing=True, time_limit=LIMIT
        )
        found = self.solver.solve()
        return np.array(found.x), found.info.status_val == self.solved


PEERS = {"Clarabel": Clarabel, "HiGHS": Highs, "DAQP": Daqp, "PIQP": Piqp, "OSQP": Osqp}


# ------------------------------------------------------------------------------------------------------------- compare


def quality(gram, ell, kappa, x):
    """Violation of the constraints, and the gap of the feasible point that x becomes, by the largest constant."""
    if not np.isfinite(x).all():
        return np.inf, np.inf
    violation = max(-x.min(), abs(x.sum() - 1.0))
    x = np.maximum(x, 0.0)
    x /= x.sum()
    v = ell - kappa * (gram @ x)
    return violation, (v.max() - x @ v) / ell.max()


def replay(path, options, peers):
    """Rows (solver, n, seconds, gap, failed) of one recording."""
    data = np.load(path)
    gram, ell, kappa = np.ascontiguousarray(data["gram"]), data["ell"], float(data["kappa"])
    alpha, other, rows, slow, turn = np.zeros(len(ell)), np.zeros(len(ell)), [], set(), 2
    alpha[0] = other[0] = 1.0

    def take(name, n, seconds, x, solved=True):
        violation, gap = quality(gram[:n, :n], ell[:n], kappa, x[:n])
        rows.append((name, n, seconds, gap, not solved or violation > FAILURE or not gap <= FAILURE))

    for n in range(2, len(ell) + 1):
        tol = TOLERANCE * ell[:n].max()
        start = time.perf_counter()
        solve_simplex_qp(gram, n, ell, kappa, alpha, tol)
        take("active set", n, time.perf_counter() - start, alpha)
        if "pairwise" not in slow:
            start = time.perf_counter()
            pairwise(gram, n, ell, kappa, other, tol, options.steps)
            take("pairwise", n, time.perf_counter() - start, other)
            if time.perf_counter() - start > LIMIT:
                slow.add("pairwise")
        if n < turn:
            continue
        turn = n + min(options.every, 1 + n // 10)
        fresh = np.eye(1, len(ell))[0]
        start = time.perf_counter()
        solve_simplex_qp(gram, n, ell, kappa, fresh, tol)
        take("active set, from scratch", n, time.perf_counter() - start, fresh)
        for name, peer in peers.items():
            if name in slow:
                continue
            peer.prepare(np.ascontiguousarray(kappa * gram[:n, :n]), -ell[:n])
            start = time.perf_counter()
            x, solved = peer.solve()
            seconds = time.perf_counter() - start
            take(name, n, seconds, x if len(x) == n else np.full(n, np.nan), solved)
            if seconds > LIMIT:
                slow.add(name)
    return rows


def compare(options):
    peers = {name: make() for name, make in PEERS.items() if importlib.util.find_spec(make.package) is not None}
    two = np.array([[0.0, 0.0], [0.0, 1.0]])
    solve_simplex_qp(two, 2, np.ones(2), 1.0, np.array([1.0, 0.0]), 0.0)
    pairwise(two, 2, np.ones(2), 1.0, np.array([1.0, 0.0]), 0.0, 1)
    rows = []
    for path in sorted(options.compare.glob("*.npz")):
        some = replay(path, options, peers)
        print(f"\n{path.stem}: {max(row[1] for row in some)} planes", flush=True)
        table(some)
        rows += some
    print("\nall recordings")
    table(rows)


def table(rows):
    """Median microseconds by the number of planes, failures, and the gaps of the rest."""
    bins = [(a, b) for a, b in itertools.pairwise(EDGES) if any(a <= row[1] < b for row in rows)]
    print(f"| {'microseconds':24} |" + "".join(f" {f'{a}-{b - 1}':>9} |" for a, b in bins), end="")
    print(f" {'failed':>12} | median gap | largest gap |")
    print("|" + "-" * 26 + "|" + (10 * "-" + ":|") * len(bins) + 13 * "-" + ":|-----------:|------------:|")
    for name in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == name]
        cells = ""
        for a, b in bins:
            times = [1e6 * row[2] for row in mine if a <= row[1] < b]
            cells += f" {np.median(times):9.0f} |" if times else f" {'':9} |"
        gaps, failed = [row[3] for row in mine if not row[4]], sum(row[4] for row in mine)
        ends = f"{np.median(gaps):10.1e} | {max(gaps):11.1e}" if gaps else f"{'':10} | {'':11}"
        print(f"| {name:24} |{cells} {f'{failed} of {len(mine)}':>12} | {ends} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=pathlib.Path, metavar="DIR", help="make recordings there")
    parser.add_argument("--compare", type=pathlib.Path, metavar="DIR", help="replay the recordings found there")
    parser.add_argument("--data-home", default=os.environ.get("MAXMARGIN_DATA"))
    parser.add_argument("--planes", type=int, default=2000, help="most planes of a recording")
    parser.add_argument("--share", type=float, default=0.001, help="gap to stop at, as a share of the primal value")
    parser.add_argument("--every", type=int, default=25, help="how many programs lie between two that peers get")
    parser.add_argument("--steps", type=int, default=100_000, help="most pairwise steps for a program")
    options = parser.parse_args()
    if options.record is None and options.compare is None:
        parser.error("give --record DIR, --compare DIR, or both")
    if options.record is not None:
        if options.data_home is None:
            parser.error("give --data-home, or set MAXMARGIN_DATA; it holds the data that is trained on")
        record(options)
    if options.compare is not None:
        compare(options)


if __name__ == "__main__":
    main()
