"""Solvers on a device of PyTorch: the same answers, bounds and certificates as compiled kernels give on the processor."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from maxmargin import BinarySVM, ChainSVM, MultiClassSVM, MultiLabelSVM
from maxmargin.devices import as_numpy, device_of
from maxmargin.devices.tensor_graphs import refusal
from maxmargin.errors import DataError, OptionError
from maxmargin.problems import graph_problem, label_edges, multi_label_problem
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.factor_graphs import FactorGraphs
from maxmargin.problems.multi_class import binary_problem, multi_class_problem
from maxmargin.solvers import (
    LBFGS,
    BundleMethod,
    ExcessiveGap,
    ExponentiatedGradient,
    Extragradient,
    FrankWolfe,
    OneSlack,
)
from maxmargin.solvers.oracles.device_oracle import DeviceOracle
from maxmargin.solvers.oracles.exp_oracle import exp_oracle_of
from maxmargin.solvers.oracles.joint_plane import joint_oracle
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import exact_optimum
from reference.random_problems import random_problem

#: PyTorch on the processor, and a GPU where there is one.
DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
C = 3.0


def tree_problem(rng, sparse):
    """Random trees whose factors have features, fixed scores and states of their own."""
    while True:
        problem = random_problem(rng, kind="forest", n_examples=9, max_arity=2, sparse=sparse, forbidden=True)
        if refusal(problem) is None:
            return problem


def problems():
    rng = np.random.default_rng(11)
    X, Y = rng.normal(size=(12, 3)), rng.integers(0, 2, (12, 4))
    lengths = rng.integers(1, 6, 9)
    rows, tags = [rng.normal(size=(t, 3)) for t in lengths], [np.zeros(t, int) for t in lengths]
    for one in tags:
        # Tag 2 may only follow tag 1, as I may only follow B.
        for t in range(len(one)):
            one[t] = rng.integers(0, 3) if t and one[t - 1] > 0 else rng.integers(0, 2)
    forbidden = np.zeros((3, 3), bool)
    forbidden[0, 2] = True
    sparse = [sp.csr_array(np.where(rng.random(one.shape) < 0.5, one, 0.0)) for one in rows]
    stars = [(rng.normal(size=(5, 2)), [[0, 4], [1, 4], [2, 4], [4, 3]], rng.normal(size=(4, 2))) for _ in range(6)]
    weights = rng.random(9) + 0.5
    return {
        "labels without pairs": multi_label_problem(X, Y, [], 4),
        "tree of labels": multi_label_problem(X, Y, label_edges("tree", Y), 4, "hamming", rng.random(12) + 0.5),
        "classes": multi_class_problem(X, rng.integers(0, 3, 12), 3),
        "two classes": binary_problem(X, rng.integers(0, 2, 12)),
        "chains": chain_problem(rows, tags, 3),
        "chains, sparse, weighted": chain_problem(sparse, tags, 3, sample_weight=weights),
        "chains with constraints": chain_problem(rows, tags, 3, forbidden=forbidden, loss="count"),
        "stars": graph_problem(stars, [rng.integers(0, 3, 5) for _ in stars], 3, edge_weights="full"),
        "random trees": tree_problem(np.random.default_rng(3), False),
        "random trees, sparse": tree_problem(np.random.default_rng(5), True),
    }


PROBLEMS = problems()
pytestmark = pytest.mark.parametrize("device", DEVICES)
each_problem = pytest.mark.parametrize("name", PROBLEMS)


def weights_of(problem, scale=1.0):
    return scale * np.random.default_rng(1).normal(size=problem.n_weights)


@each_problem
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_planes_and_hinges_are_those_of_the_processor(name, device, scale):
    problem = PROBLEMS[name]
    theirs, ours = joint_oracle(problem), DeviceOracle(problem, device)
    w = weights_of(problem, scale)
    expected = oracle_of(problem).mean_plane(w, 1)
    found = ours.mean_plane(ours.working(w), 1)
    np.testing.assert_allclose(as_numpy(found.hinges), expected.hinges, atol=1e-9)
    # Where labelings tie, planes may differ; their slopes do not.
    mean = float(np.mean(problem.arrays.weight * expected.hinges))
    assert found.ell - ours.flat(found.value) @ w == pytest.approx(mean, abs=1e-9)
    if scale == 1.0:
        np.testing.assert_allclose(ours.flat(found.value), expected.dense(len(w)), atol=1e-9)
        assert found.ell == pytest.approx(expected.ell, abs=1e-9)
    assert theirs.certificate == ours.certificate == "exact"


@each_problem
@pytest.mark.parametrize("temperature", [1e100, 3.0, 1.0, 0.01, 1e-5])
def test_expectations_are_those_of_the_processor(name, device, temperature):
    problem = PROBLEMS[name]
    theirs, ours = exp_oracle_of(problem), DeviceOracle(problem, device)
    w = weights_of(problem)
    expected, found = theirs.mean(w, temperature, 1), ours.mean(ours.working(w), temperature, 1)
    np.testing.assert_allclose(as_numpy(found.values), expected.values, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(ours.flat(found.psi), expected.psi, atol=1e-9)
    assert found.ell == pytest.approx(expected.ell, abs=1e-9)
    assert ours.radius() == theirs.radius()


@each_problem
def test_the_same_weights_give_the_same_bits(name, device):
    problem = PROBLEMS[name]
    oracle = DeviceOracle(problem, device)
    w = oracle.working(weights_of(problem))
    first, second = oracle.mean(w, 0.7, 1), oracle.mean(w, 0.7, 1)
    assert torch.equal(first.psi, second.psi)
    assert first.ell == second.ell
    assert torch.equal(first.values, second.values)


CLOSING = {
    "one-slack": (OneSlack, 1e-5),
    "bundle": (BundleMethod, 1e-5),
    "frank-wolfe": (FrankWolfe, 2e-2),
    "excessive-gap": (ExcessiveGap, 1e-2),
    "exponentiated-gradient": (ExponentiatedGradient, 2e-2),
    "extragradient": (Extragradient, 2e-2),
}


@each_problem
@pytest.mark.parametrize("solver", CLOSING)
def test_solvers_certify_the_optimum(name, device, solver):
    problem, (make, tol) = PROBLEMS[name], CLOSING[solver]
    found = make(device=device).solve(problem, C=C, tol=tol, max_passes=20000)
    best = exact_optimum(problem, C)
    assert found.certificate == "exact"
    assert found.gap <= tol
    assert found.dual <= best + 1e-9
    assert found.primal >= best - 1e-9
    assert isinstance(found.weights, np.ndarray)
    # The primal value is that of the weights, by the processor's oracle.
    plane = oracle_of(problem).mean_plane(found.weights, 1)
    value = np.mean(problem.arrays.weight * plane.hinges) + found.weights @ found.weights / (2 * C)
    if solver in ("one-slack", "bundle", "frank-wolfe"):
        assert value == pytest.approx(found.primal, abs=1e-9)
    # The others bound it from above.
    assert value <= found.primal + 1e-9


@each_problem
@pytest.mark.parametrize("objective", ["log", "softmax-margin"])
def test_smooth_objectives_agree_with_the_processor(name, device, objective):
    problem = PROBLEMS[name]
    expected = LBFGS(objective=objective).solve(problem, C=C, tol=1e-9, max_passes=2000)
    for solver, tol in ((LBFGS, 1e-9), (BundleMethod, 1e-3), (ExponentiatedGradient, 1e-3)):
        found = solver(objective=objective, device=device).solve(problem, C=C, tol=tol, max_passes=20000)
        assert found.gap <= tol
        assert found.certificate == "exact"
        assert found.dual <= expected.primal + 1e-9
        assert found.primal >= expected.dual - 1e-9
        if solver is LBFGS:
            np.testing.assert_allclose(found.weights, expected.weights, atol=1e-4)


@pytest.mark.parametrize("make", [OneSlack, LBFGS, ExcessiveGap, Extragradient, ExponentiatedGradient, FrankWolfe])
def test_checkpoints_resume_to_the_bit(device, make, tmp_path):
    problem, options = PROBLEMS["chains"], {"C": C, "tol": 0.0}
    whole = make(device=device).solve(problem, max_passes=8, **options)
    make(device=device).solve(problem, max_passes=4, checkpoint=tmp_path / "half", **options)
    resumed = make(device=device).solve(problem, max_passes=8, checkpoint=tmp_path / "half", **options)
    assert np.array_equal(whole.weights, resumed.weights)
    assert (whole.primal, whole.dual) == (resumed.primal, resumed.dual)
    with pytest.raises(OptionError, match=r"device is .* there and 'cpu' here"):
        make().solve(problem, max_passes=8, checkpoint=tmp_path / "half", **options)


@pytest.mark.parametrize("make", [OneSlack, LBFGS, ExcessiveGap, Extragradient, ExponentiatedGradient, FrankWolfe])
def test_states_start_the_next_run_on_their_device_alone(device, make):
    problem = PROBLEMS["chains"]
    first = make(device=device).solve(problem, C=C, tol=1e-3, max_passes=3000)
    again = make(device=device).solve(problem, C=1.1 * C, tol=1e-3, max_passes=3000, state=first.state)
    here = make(online=False) if make is ExponentiatedGradient else make()
    elsewhere = here.solve(problem, C=C, tol=1e-3, max_passes=3000)
    moved = make(device=device).solve(problem, C=C, tol=1e-3, max_passes=3000, state=elsewhere.state)
    assert again.gap <= 1e-3
    assert moved.gap <= 1e-3
    for field in dataclasses.fields(again.state):
        value = getattr(again.state, field.name)
        assert torch.is_tensor(value) == (field.name in type(again.state).on_device), field.name


def test_estimators_train_there(device):
    rng = np.random.default_rng(2)
    X, y = [rng.normal(size=(n, 4)) for n in rng.integers(2, 7, 40)], []
    y = [np.array(list("abc"))[np.argmax(one[:, :3], axis=1)] for one in X]
    there, here = ChainSVM(C=50, device=device).fit(X, y), ChainSVM(C=50).fit(X, y)
    assert there.result_.solver == "one-slack"
    assert there.result_.options["reason"].startswith("on a device")
    assert there.result_.certificate == "exact"
    assert there.result_.dual <= here.result_.primal
    assert here.result_.dual <= there.result_.primal
    assert all((a == b).all() for a, b in zip(there.predict(X), here.predict(X), strict=True))
    crf = ChainSVM(C=50, objective="log", device=device).fit(X, y)
    assert crf.result_.solver == "lbfgs"
    rows, classes = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    for kind, labels in ((MultiClassSVM, classes), (BinarySVM, classes > 0), (MultiLabelSVM, np.eye(3)[classes])):
        options = {"edges": "tree"} if kind is MultiLabelSVM else {}
        model = kind(C=[1.0, 10.0], device=device, **options).fit(rows, labels)
        assert model.result_.gap <= 1e-3
    assert clone(there).get_params()["device"] == device


def test_solvers_that_cannot_are_named(device):
    X, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(OptionError, match=r'"bcfw" works on the processor alone; with device=.*"bundle".*"one-slack"'):
        BinarySVM(C=1.0, solver="bcfw", device=device).fit(X, y)
    with pytest.raises(OptionError, match="is not known"):
        BinarySVM(C=1.0, device="gpu").fit(X, y)
    model = BinarySVM(C=1.0, solver=OneSlack(step=1.0), device=device).fit(X, y)
    assert model.solver.device == "cpu"
    assert model.result_.options["device"] == device


def test_what_cannot_be_there_is_refused_in_a_sentence(device):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(6, 3)), rng.integers(0, 2, (6, 4))
    loops = multi_label_problem(X, Y, label_edges("full", Y), 4)
    with pytest.raises(OptionError, match=r"not all of its graphs are trees.*use device="):
        OneSlack(device=device).solve(loops)
    rows = [rng.normal(size=(4, 2)) for _ in range(3)]
    order_2 = chain_problem(rows, [rng.integers(0, 2, 4) for _ in rows], 2, order=2)
    with pytest.raises(OptionError, match="factors of more than two variables"):
        LBFGS(device=device).solve(order_2)
    whole = chain_problem(rows, [rng.integers(0, 2, 4) for _ in rows], 2, loss="zero-one")
    with pytest.raises(OptionError, match="zero-one loss"):
        OneSlack(device=device).solve(whole)
    chains = PROBLEMS["chains"]
    with pytest.raises(OptionError, match="no slack rescaling"):
        OneSlack(rescaling="slack", device=device).solve(chains)
    with pytest.raises(OptionError, match="trees alone"):
        OneSlack(inference="exhaustive", device=device).solve(chains)
    with pytest.raises(OptionError, match="online=False"):
        ExponentiatedGradient(online=True, device=device).solve(chains)


def test_devices_that_are_not_there(device):
    with pytest.raises(OptionError, match="is not known"):
        device_of("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(OptionError, match="PyTorch sees none here"):
            device_of("cuda")
    else:
        with pytest.raises(OptionError, match="is not there"):
            device_of("cuda:99")


def test_more_than_the_memory_is_refused_before_it_is_taken(device, monkeypatch):
    there = device_of(device)
    monkeypatch.setattr(type(there), "is_gpu", True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda where: (1000, 2000))
    with pytest.raises(DataError, match=r"12 examples needs about .* GB on device=.*which has 0.0 GB to give"):
        OneSlack(device=device).solve(PROBLEMS["classes"])


def test_the_problem_is_not_changed(device):
    problem = PROBLEMS["chains with constraints"]
    assert isinstance(problem, FactorGraphs)
    before = {name: np.copy(value) for name, value in problem.arrays._asdict().items() if isinstance(value, np.ndarray)}
    OneSlack(device=device).solve(problem, C=C)
    for name, value in before.items():
        assert np.array_equal(value, getattr(problem.arrays, name)), name
