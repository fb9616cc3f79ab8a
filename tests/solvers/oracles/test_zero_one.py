"""Zero-one loss on graphs without cycles, against all labelings written out."""

from __future__ import annotations

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.cli.main import run
from maxmargin.errors import OptionError
from maxmargin.problems import chain_problem, label_edges, multi_label_problem
from maxmargin.problems.graphs import graph_problem
from maxmargin.solvers import BCFW, SOLVERS, BundleMethod, FrankWolfe, NSlack, OneSlack, Status, Subgradient
from maxmargin.solvers.core.capabilities import able
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import exact_optimum, hinges, planes, value
from reference.random_problems import random_problem


def zero_one(problem):
    made = problem.without_losses()
    made.zero_one = True
    return made


def problem_of(seed, **options):
    rng = np.random.default_rng(seed)
    options = {"sparse": bool(seed % 4 < 2), "forbidden": bool(seed % 3 == 0), "kind": "forest"} | options
    problem = zero_one(random_problem(rng, n_examples=int(rng.integers(1, 8)), **options))
    return problem, rng.normal(size=problem.n_weights) * 10.0 ** rng.uniform(-1.5, 1.0)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("max_arity", [2, 3])
def test_the_most_violated_labeling_is_that_of_all(max_arity, rescaling):
    ways = set()
    for seed in range(30):
        problem, w = problem_of(seed, max_arity=max_arity)
        every = planes(problem, "zero-one")
        oracle = oracle_of(problem, rescaling=rescaling)
        ways.add(oracle.by_count)
        assert oracle.certificate == "exact"
        expected, found = hinges(every, w), oracle.mean_plane(w, 1)
        np.testing.assert_allclose(found.hinges, expected, atol=1e-10)
        np.testing.assert_allclose(oracle.hinges(*problem.working_weights(w), 1), expected, atol=1e-10)
        psi, ell = oracle.planes(w, np.arange(problem.n_examples))
        np.testing.assert_allclose(ell - psi @ w, expected, atol=1e-10)
        for row, one, some in zip(psi.toarray(), ell, every, strict=True):
            assert min(np.abs(row - a).max(initial=0.0) + abs(one - b) for a, b in some) < 1e-9
    assert ways == ({True} if max_arity == 2 else {True, False})


@pytest.mark.parametrize(
    "solver",
    [BCFW(), OneSlack(), OneSlack(cache=5), OneSlack(rescaling="slack"), NSlack(), BundleMethod(), FrankWolfe()],
    ids=str,
)
def test_training_reaches_the_optimum(solver):
    for seed in range(4):
        problem, _ = problem_of(seed, max_arity=2 + seed % 2)
        tol = 2e-2 if isinstance(solver, FrankWolfe) else 1e-5
        result = solver.solve(problem, C=3.0, tol=tol, max_passes=20_000)
        best = exact_optimum(problem, 3.0, "zero-one")
        assert result.status is Status.CONVERGED
        assert result.certificate == "exact"
        assert result.dual - 1e-8 <= best <= result.primal + 1e-8
        assert value(problem, 3.0, result.weights, "zero-one") == pytest.approx(result.primal, abs=1e-7)


def test_subgradients_and_perceptrons():
    problem, _ = problem_of(1)
    best = exact_optimum(problem, 1.0, "zero-one")
    result = Subgradient().solve(problem, C=1.0, tol=0.0, max_passes=300)
    assert value(problem, 1.0, result.weights, "zero-one") <= best + 0.05
    assert len(SOLVERS["perceptron"]().solve(problem, C=1.0, max_passes=5).weights) == problem.n_weights


def test_losses_are_of_whole_labelings():
    problem, _ = problem_of(2)
    labels = problem.labels.copy()
    assert problem.labeling_losses(labels).tolist() == [0.0] * problem.n_examples
    labels[0] = 1 - min(labels[0], 1)
    assert problem.labeling_losses(labels).tolist() == [1.0] + [0.0] * (problem.n_examples - 1)
    assert problem.worst_losses().tolist() == [1.0] * problem.n_examples


# ------------------------------------------------------------------------------------------------- builders and estimators


def sequences(n=30, seed=0):
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, 3, rng.integers(1, 4)) for _ in range(n)]
    return [0.3 * rng.normal(size=(len(row), 2)) + np.eye(3)[row][:, :2] for row in y], y


@pytest.mark.parametrize("order", [0, 1, 2])
def test_chains(order):
    X, y = sequences(8)
    problem = chain_problem(X, y, 3, loss="zero-one", order=order)
    if order < 2:
        result = BCFW().solve(problem, C=2.0, tol=1e-6)
        assert result.primal == pytest.approx(exact_optimum(problem.with_loss_tables(), 2.0, "zero-one"), abs=2e-6)
    else:
        # Triples make cycles of longer chains.
        with pytest.raises(OptionError, match="found on graphs without cycles alone"):
            BCFW().solve(problem, C=2.0)


def test_a_tagger_and_its_sentences():
    X, y = sequences(60)
    model = mm.ChainSVM(loss="zero-one").fit(X, y)
    assert model.result_.certificate == "exact"
    assert model.result_.status is Status.CONVERGED
    assert "zero-one loss" in model.result_.options["reason"]
    wrong = np.mean([(a != b).any() for a, b in zip(model.predict(X), y, strict=True)])
    assert wrong < 0.2
    # The held-out loss is that of whole sentences.
    some = mm.ChainSVM(loss="zero-one", C=[1.0], cv=2).fit(X, y)
    assert (some.validation_path_[0].loss * 30 * 2) % 1 == pytest.approx(0.0, abs=1e-9)


def test_labels_on_a_tree_and_graphs_without_cycles():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 2)), rng.integers(0, 2, (12, 4))
    problem = multi_label_problem(X, Y, label_edges("tree", Y), 4, "zero-one")
    expected = exact_optimum(problem, 5.0, "zero-one")
    model = mm.MultiLabelSVM(C=5.0, edges="tree", loss="zero-one", fit_intercept=False, scale=False, tol=1e-6).fit(X, Y)
    assert model.result_.primal == pytest.approx(expected, abs=2e-6)
    graphs = [(rng.normal(size=(4, 2)), np.array([[0, 1], [1, 2], [1, 3]])) for _ in range(6)]
    labels = [rng.integers(0, 2, 4) for _ in graphs]
    expected = exact_optimum(graph_problem(graphs, labels, 2, loss="zero-one"), 5.0, "zero-one")
    fitted = mm.GraphSVM(C=5.0, loss="zero-one", fit_intercept=False, scale=False, tol=1e-6).fit(graphs, labels)
    assert fitted.result_.primal == pytest.approx(expected, abs=2e-6)


def test_what_cannot_be_is_refused():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 2)), rng.integers(0, 2, (12, 4))
    with pytest.raises(OptionError, match=r'loss="zero-one" .* graphs without cycles alone'):
        mm.MultiLabelSVM(loss="zero-one").fit(X, Y)
    tree = {"loss": "zero-one", "edges": "tree", "C": 1.0}
    with pytest.raises(OptionError, match=r'"soft-bcfw" needs a loss that is a sum over variables .*"bcfw"'):
        mm.MultiLabelSVM(solver="soft-bcfw", **tree).fit(X, Y)
    with pytest.raises(OptionError, match="needs a loss that is a sum"):
        mm.MultiLabelSVM(objective="softmax-margin", solver="lbfgs", **tree).fit(X, Y)
    assert mm.MultiLabelSVM(objective="log", **tree).fit(X, Y).result_.status is Status.CONVERGED
    with pytest.raises(OptionError, match=r'"greedy" cannot be the oracle of loss="zero-one": use "trees"'):
        mm.MultiLabelSVM(inference="greedy", **tree).fit(X, Y)
    with pytest.raises(OptionError, match="class_weight is not possible"):
        mm.MultiLabelSVM(class_weight="balanced", **tree).fit(X, Y)
    problem = multi_label_problem(X, Y, label_edges("tree", Y), 4, "zero-one")
    assert able(problem) == ["bcfw", "bundle", "frank-wolfe", "n-slack", "one-slack", "perceptron", "subgradient"]


def test_from_a_shell(tmp_path, capsys):
    X, y = sequences()
    lengths = np.cumsum([0, *map(len, y)])
    np.savez(tmp_path / "tags.npz", X=np.vstack(X), y=np.concatenate(y), sequence_ptr=lengths)
    assert run(["train", str(tmp_path / "tags.npz"), "--loss", "zero-one", "-C", "10", "--quiet"]) == 0
    assert "exact" in capsys.readouterr().out


def test_a_checkpoint_of_no_loss_is_not_taken_for_one_of_this(tmp_path):
    X, y = sequences(8)
    place = tmp_path / "state"
    problem = chain_problem(X, y, 3, loss="zero-one")
    BCFW().solve(problem, C=2.0, tol=0.0, max_passes=2, checkpoint=place)
    with pytest.raises(OptionError):
        BCFW().solve(problem.without_losses(), C=2.0, tol=0.0, max_passes=4, checkpoint=place)
