"""How SoftBCFW runs: reproducible, interruptible, resumable, with a history that tells what happened."""

from __future__ import annotations

import os

import numpy as np
import pytest

from maxmargin import jit
from maxmargin.datasets import make_synth2
from maxmargin.errors import OptionError
from maxmargin.problems import FactorGraphs, Features, Structure, Template, label_edges, multi_label_problem
from maxmargin.solvers import Callback, SoftBCFW, Status, make_solver
from maxmargin.solvers.soft.soft_bcfw import SoftRun
from reference.enumerated_program import exact_optimum, value
from reference.interruptions import Ticks, ctrl_c
from reference.random_problems import random_problem


@pytest.fixture(scope="module")
def problem():
    X, Y = make_synth2(120, random_state=3)
    return multi_label_problem(X, Y, label_edges("full", Y), Y.shape[1])


@pytest.fixture(scope="module")
def tables():
    """A problem of several states, arities and templates."""
    return random_problem(np.random.default_rng(5), n_examples=12, max_variables=6, max_states=4)


def test_same_seed_same_bits(problem, tables):
    for one in (problem, tables):
        first, second = (SoftBCFW().solve(one, 10.0, tol=0, max_passes=30, random_state=7) for _ in range(2))
        assert (first.weights == second.weights).all()
        assert (first.history["gap"] == second.history["gap"]).all()


def test_other_seed_other_path_same_optimum(problem):
    first, second = (SoftBCFW().solve(problem, 10.0, tol=1e-3, max_passes=5000, random_state=seed) for seed in (1, 2))
    assert (first.weights != second.weights).any()
    assert first.dual <= second.primal
    assert second.dual <= first.primal


def test_threads_do_not_change_the_bits(problem):
    one, two = (SoftBCFW().solve(problem, 10.0, tol=0, max_passes=20, n_jobs=n) for n in (1, 2))
    assert (one.weights == two.weights).all()
    assert one.primal == two.primal


@pytest.mark.parametrize(
    "options", [{}, {"rho": 2.0, "multipliers": False}, {"rho": 2.0, "multipliers": False, "blocks": "random"}]
)
@pytest.mark.parametrize("C", [1.0, 1e4])
@pytest.mark.parametrize("passes", [12, 13])  # with a check on schedule, and without
def test_a_checkpoint_continues_bit_for_bit(problem, tmp_path, options, C, passes):
    path = tmp_path / "run.ckpt"
    whole = SoftBCFW(**options).solve(problem, C, tol=0, max_passes=24)
    SoftBCFW(**options).solve(problem, C, tol=0, max_passes=passes, checkpoint=path)
    resumed = SoftBCFW(**options).solve(problem, C, tol=0, max_passes=24, checkpoint=path)
    assert resumed.n_passes == whole.n_passes == 24
    assert (resumed.weights == whole.weights).all()
    assert resumed.primal == whole.primal
    assert resumed.dual == whole.dual


def test_resuming_a_finished_run_returns_it(problem, tmp_path):
    path = tmp_path / "run.ckpt"
    first = SoftBCFW().solve(problem, 1.0, tol=1e-3, max_passes=5000, checkpoint=path)
    again = SoftBCFW().solve(problem, 1.0, tol=1e-3, max_passes=5000, checkpoint=path)
    assert first.status is again.status is Status.CONVERGED
    assert again.n_passes == first.n_passes
    assert (again.weights == first.weights).all()


def test_resuming_before_the_first_check_still_certifies(problem, tmp_path):
    path = tmp_path / "run.ckpt"
    first = SoftBCFW().solve(problem, 1.0, tol=0, max_passes=2, checkpoint=path)
    again = SoftBCFW().solve(problem, 1.0, tol=0, max_passes=2, checkpoint=path)
    assert first.status is again.status is Status.MAX_PASSES
    assert np.isfinite(again.primal)
    assert (again.weights == first.weights).all()


def test_a_checkpoint_of_other_data_is_refused(problem, tables, tmp_path):
    path = tmp_path / "run.ckpt"
    SoftBCFW().solve(problem, 1.0, max_passes=3, checkpoint=path)
    with pytest.raises(OptionError, match="belongs to another run: the data differs"):
        SoftBCFW().solve(tables, 1.0, max_passes=3, checkpoint=path)
    with pytest.raises(OptionError, match=r"belongs to another run: C is 1\.0 there and 2\.0 here\. Delete it"):
        SoftBCFW().solve(problem, 2.0, max_passes=3, checkpoint=path)


def test_a_warm_start_keeps_the_marginals(problem):
    first = SoftBCFW().solve(problem, 10.0, tol=1e-3, max_passes=5000)
    again = SoftBCFW().solve(problem, 10.0, tol=1e-3, max_passes=5000, state=first.state)
    assert again.status is Status.CONVERGED
    assert again.n_passes < first.n_passes / 2
    other = SoftBCFW().solve(problem, 12.0, tol=1e-3, max_passes=5000, state=first.state)
    cold = SoftBCFW().solve(problem, 12.0, tol=1e-3, max_passes=5000)
    assert other.n_passes < cold.n_passes
    assert other.dual <= cold.primal
    assert cold.dual <= other.primal


def test_history_and_status(monkeypatch, problem):
    result = SoftBCFW().solve(problem, 10.0, tol=1e-3, max_passes=5000)
    h = result.history
    assert {"n_passes", "seconds", "primal", "dual", "gap", "monitor_seconds"} <= h.keys()
    assert len({len(column) for column in h.values()}) == 1
    assert (np.diff(h["dual"]) >= 0).all()
    assert (np.diff(h["primal"]) <= 0).all()
    assert (np.diff(h["seconds"]) > 0).all()
    assert result.status is Status.CONVERGED
    assert result.gap == pytest.approx(result.primal - result.dual)
    assert result.gap <= 1e-3
    assert "CONVERGED: relaxed gap" in result.summary()
    assert SoftBCFW().solve(problem, 10.0, tol=1e-9, max_passes=4).status is Status.MAX_PASSES
    monkeypatch.setattr(jit, "clock", Ticks())
    late = SoftBCFW().solve(problem, 1e4, tol=1e-12, max_passes=10**6, max_seconds=40.0)
    assert late.status is Status.TIME_LIMIT
    assert np.isfinite(late.primal)


def test_large_C_is_not_slow():
    """Without the proximal centre this is still far off after 1000 passes."""
    X, Y = make_synth2(400, random_state=3)
    problem = multi_label_problem(np.hstack([X, np.ones((400, 1))]), Y, label_edges("full", Y), 10)
    result = SoftBCFW().solve(problem, 1e3, tol=3e-3, max_passes=1000)
    assert result.status is Status.CONVERGED, result.summary()
    assert result.options["proximal"] > 1


def test_a_monitor_can_stop_a_run(problem):
    result = SoftBCFW().solve(problem, 10.0, tol=0, monitor=Callback(lambda report: report.n_passes < 9))
    assert result.status is Status.INTERRUPTED
    assert result.n_passes == 9


@pytest.mark.skipif(os.name == "nt", reason="signals are sent another way on Windows")
def test_ctrl_c_keeps_the_best_certified_weights(problem):
    result = SoftBCFW().solve(problem, 1e5, tol=0, max_passes=10**7, monitor=ctrl_c(3))
    assert result.status is Status.INTERRUPTED
    assert result.dual <= result.primal < np.inf
    assert np.isfinite(result.weights).all()


def test_sample_weights_equal_repetition():
    X, Y = make_synth2(30, random_state=0)
    weight = np.ones(30)
    weight[:10] = 3.0
    edges = label_edges("tree", Y)
    weighted = SoftBCFW().solve(
        multi_label_problem(X, Y, edges, 10, sample_weight=weight), 10.0, tol=1e-4, max_passes=50_000
    )
    rows = np.concatenate([np.arange(30), np.arange(10), np.arange(10)])
    repeated = SoftBCFW().solve(multi_label_problem(X[rows], Y[rows], edges, 10), 10.0, tol=1e-4, max_passes=50_000)
    assert weighted.status is repeated.status is Status.CONVERGED
    assert abs(weighted.primal - repeated.primal) <= 2e-4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rho": -1.0}, r"rho=-1.0 is not possible"),
        ({"rho": "soft"}, r"rho='soft' is not possible"),
        ({"blocks": "all"}, r"blocks='all' is not known"),
        ({"sampling": "best"}, r"sampling='best' is not known"),
        ({"sweeps": 0}, r"sweeps=0 is not possible"),
        ({"rho_decay": 1.5}, r"rho_decay=1.5 is not possible"),
        ({"smoothing": -0.1}, r"smoothing=-0.1 is not possible"),
        ({"blocks": "random", "multipliers": False, "smoothing": 0.1}, r"without smoothing; set smoothing=0"),
        ({"blocks": "random"}, r"no multipliers; set multipliers=False"),
    ],
)
def test_options_are_checked_in_sentences(problem, options, sentence):
    with pytest.raises(OptionError, match=sentence):
        SoftBCFW(**options).solve(problem)


def test_unknown_solver_lists_the_known_ones():
    with pytest.raises(OptionError, match=r"solver='magic' is not known; use \"auto\" or one of: .*soft-bcfw"):
        make_solver("magic", None)
    with pytest.raises(OptionError, match="neither a name nor a solver object"):
        make_solver(3, None)


def test_problems_without_labels_are_refused(problem):
    X, Y = make_synth2(5, random_state=0)
    with pytest.raises(OptionError, match="no labels"):
        SoftBCFW().solve(multi_label_problem(X, None, label_edges("none", Y), 10))


@pytest.mark.parametrize("C", [1.0, 30.0])
@pytest.mark.parametrize("tables", [False, True])
def test_scores_of_single_examples_count(C, tables):
    """Fixed scores of states and joint states, which differ from example to example, against another solver and enumeration."""
    rng = np.random.default_rng(3)
    n, length, states = 10, 4, 3
    structure = Structure(
        [0] * length,
        list(range(length)),
        [0] * (length - 1),
        [0] * (length - 1),
        [(i, i + 1) for i in range(length - 1)],
    )
    problem = FactorGraphs(
        [structure], [0] * n, [Template(np.arange(states))], [Template(np.arange(states**2).reshape(states, states))],
        Features(rng.normal(size=(n * length, 2))), Features.constant(), np.arange(n) * length, [0] * n,
        rng.integers(0, states, n * length), None,
        variable_scores=rng.normal(size=n * length * states),
        factor_scores=rng.normal(size=n * (length - 1) * states**2) if tables else None,
    )  # fmt: skip
    losses = np.ones(n * length * states) / length
    losses[problem.state_starts() + problem.labels] = 0.0
    problem.arrays = problem.arrays._replace(losses=losses)
    optimum = exact_optimum(problem, C)
    result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
    assert result.status is Status.CONVERGED
    assert result.dual - 1e-9 <= optimum <= result.primal + 1e-9
    assert result.primal == pytest.approx(value(problem, C, result.weights), abs=1e-4)


def test_on_forests_the_bound_from_above_is_the_objective_itself():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, kind="forest", n_examples=5, max_states=5, forbidden=False, shared=seed % 2 == 0)
        result = SoftBCFW().solve(problem, 3.0, tol=0.0, max_passes=6)
        assert result.certificate == "exact"
        assert result.primal == pytest.approx(value(problem, 3.0, result.weights), abs=1e-9)
        assert result.dual - 1e-9 <= exact_optimum(problem, 3.0) <= result.primal + 1e-9


def test_early_bounds_from_above_are_computed_where_they_may_end_the_run(problem, monkeypatch):
    """All checks have a bound from below; the last one from above holds as long as there is no newer one."""
    asked = []

    def upper(self, now, soft, found=SoftRun.upper):
        asked.append(now.n_passes)
        return found(self, now, soft)

    monkeypatch.setattr(SoftRun, "upper", upper)
    result = SoftBCFW().solve(problem, 10.0, tol=0.0, max_passes=54)
    assert result.history["n_passes"].tolist() == [*range(3, 45, 3), 48, 54]
    assert asked == [3, 6, 12, 24, 48, 54]
    assert (np.diff(result.history["dual"]) >= 0.0).all()
    asked.clear()
    reached = SoftBCFW().solve(problem, 10.0, tol=float(result.history["gap"][7]), max_passes=54)
    assert reached.status is Status.CONVERGED
    assert asked[-1] == reached.history["n_passes"][-1] <= 33
