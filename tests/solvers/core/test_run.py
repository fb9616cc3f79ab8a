"""The main loop: what was certified survives what goes wrong."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from maxmargin.errors import TemperatureError
from maxmargin.formats import atomic
from maxmargin.inference import LinearProgram
from maxmargin.problems.multi_class import multi_class_problem
from maxmargin.solvers import BCFW, ExcessiveGap, Extragradient, FrankWolfe, NSlack, OneSlack, Status, Subgradient
from maxmargin.solvers.oracles.exp_oracle import FactorGraphExpOracle
from reference.random_problems import coupled_labels


def classes(n=30):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return multi_class_problem(X, (X @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3))).argmax(axis=1), 3)


@pytest.mark.parametrize("solver", [BCFW(), OneSlack()])
def test_a_full_disk_at_a_checkpoint_loses_nothing(solver, tmp_path, monkeypatch):
    path, problem = tmp_path / "run.mm", classes()
    plain = solver.solve(problem, 10.0, tol=0.0, max_passes=4)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full)
        with pytest.warns(RuntimeWarning, match=r"run.mm' was not written, and training goes on.*No space left"):
            result = solver.solve(problem, 10.0, tol=0.0, max_passes=4, checkpoint=path)
    np.testing.assert_array_equal(result.weights, plain.weights)
    assert result.status is plain.status
    assert "is not current" in result.message
    assert "No space left" in result.summary()
    assert os.listdir(tmp_path) == []
    again = solver.solve(problem, 10.0, tol=0.0, max_passes=4, checkpoint=path)
    assert (again.message, path.exists()) == ("", True)


@pytest.mark.parametrize("solver", [ExcessiveGap(), Extragradient()])
def test_the_coldest_temperature_ends_the_run_with_its_best_weights(solver, monkeypatch):
    problem, mean = classes(), FactorGraphExpOracle.mean
    seen = []

    def limited(self, w, temperature, threads):
        seen.append(temperature)
        if temperature < coldest:
            raise TemperatureError(f"temperature={temperature!r} is too low.")
        return mean(self, w, temperature, threads)

    monkeypatch.setattr(FactorGraphExpOracle, "mean", limited)
    coldest = 0.0
    free = solver.solve(problem, 10.0, tol=0.0, max_passes=30)
    coldest = 3.0 * min(seen)
    result = solver.solve(problem, 10.0, tol=0.0, max_passes=30)
    assert (result.status, result.certificate) == (Status.STALLED, "exact")
    assert 0 < result.n_passes < free.n_passes
    assert result.weights.any()
    assert np.isfinite(result.gap)
    assert "is too low" in result.message
    assert result.message in result.summary()
    # Nothing is certified yet: the sentence is an error.
    coldest = 1e6
    with pytest.raises(TemperatureError, match="is too low"):
        solver.solve(problem, 10.0, tol=0.0, max_passes=30)


class Remembering(LinearProgram):
    """An engine of another name that keeps its models from example to example."""

    name = "remembering"
    sequential = True


@pytest.mark.parametrize("engine", [LinearProgram, Remembering])
@pytest.mark.parametrize("solver", [BCFW, OneSlack, NSlack, FrankWolfe, Subgradient])
def test_engines_that_keep_something_resume_bit_for_bit(solver, engine, tmp_path):
    """Where scores tie, which of several vertices comes back must not depend on earlier calls."""
    for seed in range(3):
        problem, path = coupled_labels(seed, 20), tmp_path / f"{seed}.mm"
        for k in (1, 3):
            whole = solver(inference=engine()).solve(problem, 30.0, tol=0.0, max_passes=2 * k)
            path.unlink(missing_ok=True)
            solver(inference=engine()).solve(problem, 30.0, tol=0.0, max_passes=k, checkpoint=path)
            resumed = solver(inference=engine()).solve(problem, 30.0, tol=0.0, max_passes=2 * k, checkpoint=path)
            np.testing.assert_array_equal(resumed.weights, whole.weights)
            assert (resumed.dual, resumed.primal) == (whole.dual, whole.primal)
