"""Problems written in Python: the same optimum as the same problem in factor graphs, and everything a model can do wrong."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import DataError, OptionError
from maxmargin.problems.chains import chain_problem
from maxmargin.problems.python_problem import Model, NamedWeights, OracleError, PythonProblem
from maxmargin.solvers import BundleMethod, NSlack, OneSlack, Status
from maxmargin.solvers.frank_wolfe.bcfw import BCFW
from maxmargin.solvers.frank_wolfe.frank_wolfe import FrankWolfe
from maxmargin.solvers.online.perceptron import Perceptron
from maxmargin.solvers.online.subgradient import Subgradient
from maxmargin.solvers.oracles.max_oracle import oracle_of
from reference.enumerated_program import exact_optimum

SLACK = 1e-7


class Chain(Model):
    """A chain of three tags; positions of two features. Its maxima are found by trying every output."""

    def __init__(self, kind="dense"):
        self.kind = kind
        if kind == "dict":
            tags = [("emit", k, j) for k in range(3) for j in range(2)] + [
                ("next", a, b) for a in range(3) for b in range(3)
            ]
            self.feature_names = ["/".join(map(str, name)) for name in tags]

    def joint_features(self, x, y):
        phi = np.zeros(15)
        for row, tag in zip(x, y, strict=True):
            phi[2 * tag : 2 * tag + 2] += row
        for one, two in itertools.pairwise(y):
            phi[6 + 3 * one + two] += 1
        if self.kind == "sparse":
            return sp.csr_array(phi[None])
        if self.kind == "dict":
            return {name: value for name, value in zip(self.feature_names, phi, strict=True) if value}
        return phi

    def loss(self, y, y_hat):
        return float(np.mean(np.asarray(y) != np.asarray(y_hat)))

    def score(self, x, y, w):
        phi = self.joint_features(x, y)
        if self.kind == "dict":
            return sum(w[name] * value for name, value in phi.items())
        return float((phi @ w)[0]) if self.kind == "sparse" else float(phi @ w)

    def most_violated(self, x, y, w):
        return max(
            itertools.product(range(3), repeat=len(x)), key=lambda one: self.loss(y, one) + self.score(x, one, w)
        )

    def predict(self, x, w):
        return max(itertools.product(range(3), repeat=len(x)), key=lambda one: self.score(x, one, w))


def pairs(n=8, seed=0, longest=3):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(int(t), 2)) for t in rng.integers(1, longest + 1, n)]
    return X, [tuple(int(k) for k in rng.integers(0, 3, len(x))) for x in X]


def both(seed=0, kind="dense", n=8):
    """The same examples, weighted, as a PythonProblem and as factor graphs."""
    X, Y = pairs(n, seed)
    weight = np.random.default_rng(seed).random(n) + 0.5
    graphs = chain_problem(X, [np.array(y) for y in Y], 3, boundary=False, loss="fraction", sample_weight=weight)
    return PythonProblem(X, Y, Chain(kind), weight), graphs


SOLVERS = [
    BCFW(),
    BCFW(steps="pairwise", batch=3),
    BCFW(cache=0, sampling="uniform", averaging=True),
    BCFW(cache=2),
    FrankWolfe(),
]


# Kinds of features differ in nothing that a solver sees.
@pytest.mark.parametrize(
    ("solver", "kind"), [(solver, "dense") for solver in SOLVERS] + [(BCFW(), "sparse"), (BCFW(), "dict")]
)
def test_the_optimum_is_that_of_the_factor_graphs(solver, kind):
    tol = 1e-4 if solver.name == "bcfw" else 5e-3
    for seed in range(3):
        problem, graphs = both(seed, kind)
        assert problem.n_weights == graphs.n_weights
        best = exact_optimum(graphs, 3.0)
        result = solver.solve(problem, 3.0, tol=tol, max_passes=2000)
        assert result.certificate == "exact"
        assert result.status is Status.CONVERGED, result.summary()
        assert (result.history["dual"] <= best + SLACK).all()
        assert (result.history["primal"] >= best - SLACK).all()
        # The weights themselves have that value in the other problem.
        hinges = oracle_of(graphs).mean_plane(result.weights, 1).hinges
        value = result.weights @ result.weights / 6.0 + graphs.arrays.weight @ hinges / problem.n_examples
        assert result.primal == pytest.approx(value, abs=1e-9)


def test_subgradients():
    problem, graphs = both(1)
    best = exact_optimum(graphs, 3.0)
    result = Subgradient(batch=2).solve(problem, 3.0, tol=0.0, max_passes=100)
    assert result.certificate == "exact"
    assert (result.history["dual"] <= best + SLACK).all()
    assert (result.history["primal"] >= best - SLACK).all()
    assert result.primal <= 1.01 * best


@pytest.mark.parametrize("augmented", [False, True])
def test_perceptrons_follow_their_definition(augmented):
    problem, _ = both(1)
    model, w, total = problem.model, np.zeros(15), 0.0
    for k in range(3):
        for m in np.random.default_rng([0, 0, k]).permutation(8):
            x, y = problem.X[m], problem.Y[m]
            found = model.most_violated(x, y, w) if augmented else model.predict(x, w)
            w = w + problem.weight[m] * (model.joint_features(x, y) - model.joint_features(x, found))
            total = total + w
    result = Perceptron(loss_augmented=augmented).solve(problem, max_passes=3)
    np.testing.assert_allclose(result.weights, total / 24, atol=1e-12)
    assert result.certificate == "none"


def test_kept_planes_save_calls_and_stay_sparse():
    problem, _ = both(0, n=15)
    cached = BCFW().solve(problem, 10.0, tol=1e-2, max_passes=500)
    plain = BCFW(cache=0).solve(problem, 10.0, tol=1e-2, max_passes=500)
    assert cached.status is plain.status is Status.CONVERGED
    assert cached.n_oracle_calls < plain.n_oracle_calls
    store = cached.state.store
    dense = store.n_planes.sum() * problem.n_weights
    assert store.filled[0, 0] < 0.7 * dense


class Batched(Chain):
    """Answers many examples at once."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def most_violated_batch(self, xs, ys, w):
        self.sizes.append(len(xs))
        return [self.most_violated(x, y, w) for x, y in zip(xs, ys, strict=True)]

    def predict_batch(self, xs, w):
        return [self.predict(x, w) for x in xs]


def test_batches_give_the_same_bits():
    X, Y = pairs(12)
    model = Batched()
    one = BCFW(batch=4).solve(PythonProblem(X, Y, Chain()), 3.0, max_passes=5)
    other = BCFW(batch=4).solve(PythonProblem(X, Y, model), 3.0, max_passes=5)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert 12 in model.sizes
    assert 4 in model.sizes


@pytest.mark.parametrize("solver", [BCFW(), BCFW(averaging=True, batch=5), FrankWolfe(), Subgradient()])
def test_a_checkpoint_goes_on_bit_for_bit(solver, tmp_path):
    problem, _ = both(2, n=12)
    whole = solver.solve(problem, 10.0, tol=0.0, max_passes=9)
    solver.solve(problem, 10.0, tol=0.0, max_passes=4, checkpoint=tmp_path / "state")
    rest = solver.solve(problem, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state", n_jobs=2)
    np.testing.assert_array_equal(rest.weights, whole.weights)
    assert (rest.primal, rest.dual) == (whole.primal, whole.dual)
    other, _ = both(3, n=12)
    with pytest.raises(OptionError, match="belongs to another run: the data differs"):
        solver.solve(other, 10.0, tol=0.0, max_passes=9, checkpoint=tmp_path / "state")


def test_a_warm_start_keeps_the_planes():
    problem, graphs = both(0, n=12)
    first = BCFW().solve(problem, 1.0, tol=1e-4, max_passes=500)
    run = BCFW().make_run(problem, 0.1, 0, 1)
    np.testing.assert_allclose(run.begin(first.state).w, first.state.w, atol=1e-12)
    warm = BCFW().solve(problem, 10.0, tol=1e-4, max_passes=500, state=first.state)
    assert warm.status is Status.CONVERGED
    assert warm.dual - SLACK <= exact_optimum(graphs, 10.0) <= warm.primal + SLACK


# --------------------------------------------------------------------------------------------------- features in dicts


class Words(Model):
    """One of two classes for a list of words, by features with names."""

    def joint_features(self, x, y):
        return {f"{word}/{y}": 1.0 for word in x} | {y: 2.0}

    def loss(self, y, y_hat):
        return float(y != y_hat)

    def most_violated(self, x, y, w):
        return max(
            (0, 1), key=lambda one: self.loss(y, one) + sum(v * w[k] for k, v in self.joint_features(x, one).items())
        )

    def predict(self, x, w):
        return max((0, 1), key=lambda one: sum(v * w[k] for k, v in self.joint_features(x, one).items()))


def test_names_are_those_of_the_training_pairs():
    problem = PythonProblem([["a", "b"], ["b", "c"]], [0, 1], Words())
    assert problem.feature_names == ["a/0", "b/0", 0, "b/1", "c/1", 1]
    assert problem.n_weights == 6
    np.testing.assert_array_equal(problem.truth.toarray(), [[1, 1, 2, 0, 0, 0], [0, 0, 0, 1, 1, 2]])
    # The other class of example 0 has a/1, which no truth shows: left out.
    psi, ell = oracle_of(problem).planes(np.zeros(6), np.array([0]))
    np.testing.assert_array_equal(psi.toarray(), [[1, 1, 2, -1, 0, -2]])
    assert ell == [1.0]
    result = BCFW().solve(problem, 100.0, tol=1e-4)
    assert result.status is Status.CONVERGED
    w = NamedWeights(problem.number_of, result.weights)
    assert w["a/0"] > 0
    assert w["a/1"] == 0.0
    assert "a/1" not in w
    assert list(w) == problem.feature_names
    assert len(w) == 6
    assert Words().predict(["a", "unseen"], w) == 0


# --------------------------------------------------------------------------------------------------- what can go wrong


def changed(method, function, model=None):
    """A chain with one method replaced."""
    model = model or Chain()
    setattr(model, method, function)
    return model


@pytest.mark.parametrize(
    ("method", "function", "words"),
    [
        ("joint_features", lambda x, y: np.zeros(18 - len(x)), r"Example 1: the features .* shape \(15,\); expected \(17,\)"),
        ("joint_features", lambda x, y: np.full(15, np.nan), "Example 0: feature 0 of its own output is nan"),
        ("joint_features", lambda x, y: ["a"] * 15, "Example 0: the features of its own output are a list; expected a vector"),
        ("joint_features", lambda x, y: {(1, 2): 1.0}, r"Example 0: the feature name \(1, 2\) is neither a string nor"),
        ("joint_features", lambda x, y: {"a": "b"}, "Example 0: the feature 'a' is 'b'; expected a number"),
        ("joint_features", lambda x, y: {"a": np.inf}, "Example 0: feature 'a' of its own output is inf"),
        ("joint_features", lambda x, y: {"a": 1.0} if len(x) < 3 else [1.0], "Example 1: the features .* list; expected a dict"),
        ("loss", lambda y, y_hat: 0.5, "Example 0: the loss of its own output is 0.5; expected 0"),
        ("loss", lambda y, y_hat: -1.0, "Example 0: the loss is -1.0; expected a finite number that is not negative"),
        ("loss", lambda y, y_hat: np.nan, "Example 0: the loss is nan"),
        ("loss", lambda y, y_hat: "much", "Example 0: the loss is 'much'; expected a number"),
    ],
)  # fmt: skip
def test_answers_that_are_wrong_from_the_start(method, function, words):
    X, Y = [np.ones((1, 2)), np.ones((3, 2))], [(0,), (0, 1, 2)]
    with pytest.raises(DataError, match=words):
        PythonProblem(X, Y, changed(method, function))


def test_data_that_cannot_be():
    with pytest.raises(DataError, match="X has 2 examples, but Y has 1"):
        PythonProblem([1, 2], [1], Chain())
    with pytest.raises(DataError, match="There are no examples"):
        PythonProblem([], [], Chain())
    with pytest.raises(
        DataError, match=r"The model is a int; expected an object with the methods .* no joint_features"
    ):
        PythonProblem([1], [1], 3)
    with pytest.raises(DataError, match="The model is the class Chain itself"):
        PythonProblem([1], [1], Chain)
    with pytest.raises(DataError, match="sample weights have shape"):
        PythonProblem(*pairs(3), Chain(), [1.0])
    with pytest.raises(DataError, match="lists feature_names, but its features are not dicts"):
        PythonProblem(*pairs(3), changed("feature_names", ["a"]))
    with pytest.raises(OptionError, match="inference='trees' is for factor graphs"):
        BCFW("trees").solve(PythonProblem(*pairs(3), Chain()))
    with pytest.raises(OptionError, match='steps="plain" is for factor graphs'):
        BCFW.plain().solve(PythonProblem(*pairs(3), Chain()))


@pytest.mark.parametrize("solver", [BCFW(), FrankWolfe(), Subgradient()])
def test_an_oracle_below_the_truth_is_refused(solver):
    """Always the same wrong output: worse than the truth, once the weights know it."""
    worst = changed("most_violated", lambda x, y, w: (1,))
    x = [np.array([[3.0, 0.0]]), np.array([[9.0, 0.0]])]
    with pytest.raises(
        DataError, match=r"Example \d: most_violated returned an output whose loss \+ score is .* below"
    ):
        solver.solve(PythonProblem(x, [(0,), (0,)], worst), 100.0, tol=0.0, max_passes=50)
    worst.exact = False
    result = solver.solve(PythonProblem(x, [(0,), (0,)], worst), 100.0, tol=1.0, max_passes=5)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED


def test_an_oracle_that_forgets_what_it_found_is_refused():
    """After a dozen calls it only says the truth, which is not worse than the truth, yet worse than what it found before."""
    model, calls = Chain(), itertools.count()

    def most_violated(x, y, w):
        return Chain.most_violated(model, x, y, w) if next(calls) < 12 else y

    model.most_violated = most_violated
    with pytest.raises(DataError, match="is below that of one it returned before"):
        BCFW().solve(PythonProblem(*pairs(6), model), 10.0, tol=0.0, max_passes=50)


class Failing(Chain):
    """Raises at a call that is chosen."""

    def __init__(self, at):
        super().__init__()
        self.left = at

    def most_violated(self, x, y, w):
        self.left -= 1
        if self.left < 0:
            raise ZeroDivisionError("of its own")
        return super().most_violated(x, y, w)


@pytest.mark.parametrize("solver", [BCFW(), FrankWolfe(), Subgradient(), Perceptron(loss_augmented=True)])
def test_an_oracle_that_raises_leaves_the_model_so_far(solver, tmp_path):
    X, Y = pairs(8)
    path = tmp_path / "state"
    problem = PythonProblem(X, Y, Failing(75))
    with pytest.warns(
        RuntimeWarning, match=r"Training stopped, and what was learned before is kept. Example \d"
    ) as caught:
        result = solver.solve(problem, 3.0, tol=0.0, max_passes=1000, checkpoint=path)
    assert isinstance(caught[0].message.__cause__, ZeroDivisionError)
    assert result.status is Status.INTERRUPTED
    assert result.options["error"].endswith("most_violated raised ZeroDivisionError: of its own")
    assert np.isfinite(result.primal)
    np.testing.assert_allclose(
        result.primal, primal(PythonProblem(X, Y, Chain()), 3.0, result.weights), atol=1e-9
    )  # fmt: skip
    # With the code mended, training goes on from there.
    problem.model.left = 10**9
    mended = solver.solve(problem, 3.0, tol=0.0, max_passes=20, checkpoint=path)
    assert mended.n_passes == 20
    assert "error" not in mended.options


def primal(problem, C, w):
    """P(w) by trying every output of every example."""
    hinges = []
    for x, y in zip(problem.X, problem.Y, strict=True):
        model, own = problem.model, problem.model.score(x, y, w)
        every = itertools.product(range(3), repeat=len(x))
        hinges.append(max(model.loss(y, one) + model.score(x, one, w) - own for one in every))
    return w @ w / (2 * C) + problem.weight @ hinges / len(hinges)


def test_an_oracle_that_raises_before_anything_is_known():
    problem = PythonProblem(*pairs(8), Failing(3))
    for solver in (BCFW(), FrankWolfe(), Subgradient()):
        problem.model.left = 3
        with pytest.raises(OracleError, match=r"Example \d: most_violated raised ZeroDivisionError") as caught:
            solver.solve(problem)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(OracleError, match="Example 0: joint_features raised NotImplementedError"):
        PythonProblem([1], [1], Model())


@pytest.mark.parametrize("kind", ["dense", "sparse", "dict"])
def test_no_examples_asked_about(kind):
    problem = PythonProblem(*pairs(3), Chain(kind))
    for augmented in (False, True):
        psi, ell = oracle_of(problem, loss_augmented=augmented).planes(np.zeros(15), np.empty(0, np.int64))
        assert psi.shape == (0, 15)
        assert ell.shape == (0,)


def test_batches_of_the_wrong_length():
    model = Batched()
    model.most_violated_batch = lambda xs, ys, w: list(ys)[1:]
    with pytest.raises(DataError, match="Example 0 and 7 more: most_violated_batch returned 7 outputs; expected 8"):
        FrankWolfe().solve(PythonProblem(*pairs(8), model))


def test_methods_cannot_write_to_the_weights():
    def most_violated(x, y, w):
        w[0] = 1.0
        return y

    problem = PythonProblem(*pairs(3), changed("most_violated", most_violated))
    with pytest.raises(OracleError, match="read-only"):
        BCFW().solve(problem)


# ------------------------------------------------------------------------------------------------- one buffer for all


class OneBuffer(Model):
    """Three classes, whose features are written into the same object at every call."""

    def __init__(self, kind):
        self.kind = kind
        self.buffer = {"vector": np.zeros(12), "list": [0.0] * 12, "dict": {}, "sparse": None}[kind]
        self.feature_names = list(range(12)) if kind == "dict" else None
        if kind == "sparse":
            self.buffer = sp.csr_array((np.zeros(4), np.zeros(4, np.int32), [0, 4]), (1, 12))

    def joint_features(self, x, y):
        if self.kind == "sparse":
            self.buffer.indices[:], self.buffer.data[:] = np.arange(4 * y, 4 * y + 4), x
        elif self.kind == "dict":
            self.buffer.clear()
            self.buffer.update({4 * y + k: v for k, v in enumerate(x)})
        else:
            self.buffer[:] = [0.0] * 12
            self.buffer[4 * y : 4 * y + 4] = list(x)
        return self.buffer

    def loss(self, y, y_hat):
        return float(y != y_hat)

    def most_violated(self, x, y, w):
        scores = np.array([w[k] for k in range(12)]).reshape(3, 4) @ x + 1.0
        scores[y] -= 1.0
        return int(scores.argmax())

    def predict(self, x, w):
        return int((np.array([w[k] for k in range(12)]).reshape(3, 4) @ x).argmax())


@pytest.mark.parametrize("kind", ["vector", "list", "dict", "sparse"])
@pytest.mark.parametrize(
    "solver", [BCFW(), FrankWolfe(), Subgradient(), Perceptron(), OneSlack(), NSlack(), BundleMethod()]
)
def test_a_model_may_return_one_buffer_every_time(solver, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4))
    Y = (X @ rng.normal(size=(4, 3)) + rng.normal(size=(20, 3))).argmax(axis=1).tolist()
    result = solver.solve(PythonProblem(X, Y, OneBuffer(kind)), 10.0, tol=1e-2, max_passes=30)
    w = result.weights.reshape(3, 4)
    scores = X @ w.T + 1.0 - np.eye(3)[Y]
    hinge = (scores.max(axis=1) - (X * w[Y]).sum(axis=1)).mean()
    assert result.primal == pytest.approx(np.sum(w**2) / 20.0 + hinge, abs=1e-9)
    assert result.primal >= result.dual
