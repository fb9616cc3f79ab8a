"""Training with structured factors against quadratic programs in which their labelings are written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from maxmargin.errors import DataError
from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.problems.losses import variable_losses
from maxmargin.problems.structured import at_most, cardinality, chain, custom, tree
from maxmargin.solvers import BCFW, SoftBCFW, Status
from maxmargin.solvers.soft.bounds import dual_point
from maxmargin.solvers.soft.state import BoundRules
from reference.enumerated_program import exact_optimum
from reference.enumeration import examples, statistics
from reference.quadratic_program import optimum
from reference.random_problems import parity_maximise, parity_statistics

SLACK = 1e-7
KINDS = ("cardinality", "budget", "chain", "tree", "custom")


def random_template(rng, kind, n, n_states, n_blocks, forbidden):
    """A structured template; its parameters have blocks of their own or share them, fixed scores, and some are forbidden."""
    if kind == "budget":
        return at_most(n, int(rng.integers(1, n + 1)))
    size = {"cardinality": n + 1, "chain": n_states**2, "tree": n_states**2, "custom": 2}[kind]
    blocks = n_blocks + (np.arange(size) if rng.random() < 0.5 else np.arange(size) // 2)
    blocks[rng.random(size) < 0.2] = -1
    scores = np.where(rng.random(size) < 0.3, rng.normal(size=size), 0.0)
    if forbidden:
        # The first parameter stays allowed, and with it the labeling of zeros.
        scores[1:][rng.random(size - 1) < 0.3] = -np.inf
    if kind == "cardinality":
        return cardinality(n, scores, blocks)
    if kind == "chain":
        return chain(n, n_states, scores, blocks)
    if kind == "tree":
        return tree([-1] + [int(rng.integers(j)) for j in range(1, n)], n_states, scores, blocks)
    return custom((2,) * n, 2, parity_maximise, parity_statistics, scores, blocks)


def random_labelled(seed, forbidden=False, overlapping=False, tables=True):
    """A labelled batch with one or two structured factors an example, over disjoint scopes unless `overlapping`."""
    rng = np.random.default_rng([seed, 7])
    kind = KINDS[seed % len(KINDS)]
    n_states = int(rng.integers(2, 4)) if kind in ("chain", "tree") else 2
    factor_templates, n_blocks, structures = [], 0, []
    for _ in range(2):
        n = int(rng.integers(2, 6))
        kinds, scopes, free = [], [], rng.permutation(n)
        for _ in range(int(rng.integers(1, 3))):
            arity = int(rng.integers(1, n + 1))
            scope = rng.permutation(n)[:arity] if overlapping else free[:arity]
            free = free[arity:]
            if len(scope):
                factor_templates.append(random_template(rng, kind, len(scope), n_states, n_blocks, forbidden))
                kinds.append(len(factor_templates) - 1)
                scopes.append(tuple(int(v) for v in scope))
                n_blocks = max(n_blocks, int(factor_templates[-1].blocks.max()) + 1)
        for _ in range(int(rng.integers(0, n)) if tables else 0):
            shape = (n_states,) * int(rng.integers(1, 3))
            given = np.where(rng.random(shape) < 0.8, n_blocks + np.arange(np.prod(shape)).reshape(shape), -1)
            factor_templates.append(Template(given, np.where(rng.random(shape) < 0.3, rng.normal(size=shape), 0.0)))
            n_blocks = max(n_blocks, int(given.max()) + 1)
            kinds.insert(0, len(factor_templates) - 1)
            scopes.insert(0, tuple(int(v) for v in rng.permutation(n)[: len(shape)]))
        rows = np.zeros(len(kinds), int) if rng.random() < 0.5 else np.sort(rng.integers(0, 2, len(kinds)))
        structures.append(Structure(np.zeros(n, int), np.arange(n), kinds, rows, scopes))
    n_examples = int(rng.integers(1, 6))
    structure_of = rng.integers(0, 2, n_examples)
    lengths = np.array([len(structures[s].variable_templates) for s in structure_of])
    x = Features(rng.normal(size=(int(lengths.sum()), 2)))
    z = Features(rng.normal(size=(2 * n_examples, int(rng.integers(1, 3)))))
    variable_scores = None
    if forbidden:
        variable_scores = np.where(rng.random(int(lengths.sum()) * n_states) < 0.1, -np.inf, 0.0)
        variable_scores[::n_states] = 0.0

    def build(labels, losses):
        return FactorGraphs(
            structures, structure_of, [Template(np.arange(n_states))], factor_templates, x, z, np.cumsum(lengths) - lengths,
            2 * np.arange(n_examples), labels, losses, variable_scores=variable_scores, weights=rng.random(n_examples) + 0.5,
        )  # fmt: skip

    labels = []
    for example in examples(build(None, None)):
        allowed = [
            y
            for y in itertools.product(*(range(k) for k in example.n_states))
            if is_allowed(example, y, variable_scores)
        ]
        labels += allowed[rng.integers(len(allowed))]
    losses = variable_losses(np.array(labels, np.int32), np.full(len(labels), n_states), lengths, "hamming")
    return build(labels, losses), float(10.0 ** rng.uniform(-1, 1.5))


def is_allowed(example, labels, variable_scores):
    if variable_scores is not None and np.isneginf(variable_scores[np.array(example.state_start) + labels]).any():
        return False
    for scope, template in zip(example.structure.scopes, example.templates, strict=True):
        used = statistics(template, [int(labels[v]) for v in scope])
        if any(np.isneginf(template.scores.flat[entry]) for entry in used):
            return False
    return True


def brackets(result, best):
    return (
        result.dual - SLACK <= best <= result.primal + SLACK
        and (result.history["dual"] <= best + SLACK).all()
        and (result.history["primal"] >= best - SLACK).all()
    )


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_gap_closes_around_the_optimum_where_scopes_are_disjoint(first):
    for seed in range(first, first + 20):
        problem, C = random_labelled(seed)
        assert problem.has_structured
        best = optimum(problem, C)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
        assert brackets(result, best), (seed, best, result.summary())
        assert result.status is Status.CONVERGED, (seed, result.summary())
        assert result.certificate == ("exact" if problem.is_forest else "relaxed")
        if problem.is_forest:
            assert best == pytest.approx(exact_optimum(problem, C), rel=1e-6)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_bounds_hold_with_hard_constraints(first):
    """The gap closes too, unless a table cannot be repaired onto the structured factor's marginals."""
    closed = 0
    for seed in range(first, first + 20):
        problem, C = random_labelled(seed, forbidden=True)
        best = optimum(problem, C)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=5_000)
        assert brackets(result, best), (seed, best, result.summary())
        assert result.primal <= best + 1e-3, (seed, best, result.summary())
        closed += result.status is Status.CONVERGED
    assert closed == 20


def test_bounds_hold_where_scopes_overlap():
    """A variable in two structured factors leaves the lower bound at the truth's 0, but the upper one reaches the optimum."""
    overlap = 0
    for seed in range(30):
        problem, C = random_labelled(seed, overlapping=True)
        best = optimum(problem, C)
        result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=1_000)
        assert brackets(result, best), (seed, best, result.summary())
        assert result.primal <= best + 2e-3, (seed, best, result.summary())
        overlap += result.status is not Status.CONVERGED
    assert overlap > 0


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_soft_certificates_bracket_the_soft_optimum(first):
    for seed in range(first, first + 20):
        problem, C = random_labelled(seed, forbidden=seed % 3 == 0, overlapping=seed % 2 == 0)
        rho = float(10.0 ** np.random.default_rng(seed).uniform(-1, 1))
        best, hard = optimum(problem, C, rho), optimum(problem, C)
        result = SoftBCFW(rho=rho, multipliers=False).solve(problem, C, tol=1e-3, max_passes=2_000)
        assert result.certificate == "soft"
        assert brackets(result, best), (seed, best, result.summary())
        assert result.status is Status.CONVERGED, (seed, result.summary())
        assert (result.history["relaxed_dual"] <= hard + SLACK).all(), seed
        assert (result.history["relaxed_primal"] >= hard - SLACK).all(), seed


@pytest.mark.parametrize("seed", range(10))
def test_extensions_keep_certificates_true(seed):
    problem, C = random_labelled(seed)
    best = optimum(problem, C)
    for solver in (SoftBCFW(smoothing=0.01), SoftBCFW(rho=10.0, multipliers=False, rho_decay=0.97)):
        result = solver.solve(problem, C, tol=1e-4, max_passes=300)
        assert brackets(result, best), (best, result.summary())
        assert result.primal <= best + 0.05 * (1.0 + best)


def test_training_resumes_to_the_bit_and_starts_from_earlier_marginals(tmp_path):
    for seed in range(5):
        problem, C = random_labelled(seed)
        whole = SoftBCFW().solve(problem, C, tol=0.0, max_passes=20)
        path = tmp_path / f"{seed}.zip"
        SoftBCFW().solve(problem, C, tol=0.0, max_passes=10, checkpoint=path)
        parts = SoftBCFW().solve(problem, C, tol=0.0, max_passes=20, checkpoint=path)
        assert (whole.weights == parts.weights).all()
        assert whole.dual == parts.dual
        solved = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000)
        larger = SoftBCFW().solve(problem, 2 * C, tol=1e-3, max_passes=20_000, state=solved.state)
        assert larger.status is Status.CONVERGED
        assert brackets(larger, optimum(problem, 2 * C))


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_bcfw_trains_with_exact_labelings(first):
    """Planes of labelings count statistics; both oracles reach the optimum over all labelings."""
    for seed in range(first, first + 10):
        problem, C = random_labelled(seed, forbidden=seed % 2 == 0, overlapping=seed % 3 == 0)
        best = exact_optimum(problem, C)
        for engine in ("exhaustive", "dual_decomposition"):
            result = BCFW(engine).solve(problem, C, tol=1e-3, max_passes=500)
            assert result.certificate == "exact"
            assert result.dual - SLACK <= best <= result.primal + SLACK, (seed, engine, best, result.summary())
            if engine == "exhaustive":
                assert result.status is Status.CONVERGED, (seed, result.summary())


# ------------------------------------------------------------------------------------------------ Algorithm 1


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_algorithm_1_brackets_the_soft_optimum_and_reaches_it(first):
    for seed in range(first, first + 20):
        problem, C = random_labelled(seed, forbidden=seed % 3 == 0, overlapping=seed % 2 == 0)
        rho = float(10.0 ** np.random.default_rng(seed).uniform(-1, 1))
        best = optimum(problem, C, rho)
        result = SoftBCFW.algorithm_1(rho).solve(problem, C, tol=1e-3, max_passes=20_000)
        assert result.certificate == "soft"
        assert brackets(result, best), (seed, best, result.summary())
        # Plain Frank-Wolfe steps converge like one over the passes.
        assert result.gap <= 0.03 * max(1.0, best), (seed, best, result.summary())


@pytest.mark.parametrize("seed", range(30, 40))
def test_algorithm_1_keeps_the_weights_of_its_marginals(seed):
    """Whatever stands in the room for one example before: blocks that a factor leaves out are not moved."""
    problem, C = random_labelled(seed, forbidden=False, overlapping=seed % 2 == 0)
    run = SoftBCFW.algorithm_1(1.0).make_run(problem, 1.0 / C, 0, 1)
    now, r_v, r_f = run.begin(None), *problem.working_weights()
    for _ in range(5):
        run.room.moved[:] = np.nan
        run.one_pass(now, lambda: False)
    rules = BoundRules(1.0 / C, 1.0, True)
    dual_point(run.batch, now.point, rules, run.room, r_v, r_f, 0, problem.n_examples, *run.structured)
    np.testing.assert_allclose(now.w_v, r_v, atol=1e-10)
    np.testing.assert_allclose(now.w_f, r_f, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_algorithm_1_is_that_of_a_table_of_the_same_labelings(seed):
    """A count over four labels beside a table of its 16 joint states, with the same draws: the same steps, to rounding.

    The labels' marginals are random before every step, so that no two labelings are equally good.
    """
    rng = np.random.default_rng(seed)
    counts = np.indices((2,) * 4).sum(axis=0)
    scores = np.where(rng.random(5) < 0.5, rng.normal(size=5), 0.0)
    blocks = np.array([-1, 0, 1, 1, 2])
    both = cardinality(4, scores, blocks), Template(blocks[counts], scores[counts])
    problems = (sets_of_labels(np.random.default_rng(seed), 8, 4, template) for template in both)
    runs = [SoftBCFW.algorithm_1(0.5).make_run(problem, 0.1, 3, 1) for problem in problems]
    states = [run.truth() for run in runs]
    for _ in range(200):
        mu, block = rng.dirichlet([1.0, 1.0], 32).ravel(), rng.integers(8 * 5, size=1)
        for run, now in zip(runs, states, strict=True):
            now.point.mu[:] = mu
            n, rules = run.problem.n_examples, BoundRules(0.1, 0.5, True)
            dual_point(run.batch, now.point, rules, run.room, now.w_v, now.w_f, 0, n, *run.structured)
            run.draw(now, block)
        np.testing.assert_allclose(states[0].point.mu, states[1].point.mu, atol=1e-11)
        np.testing.assert_allclose(states[0].w_v, states[1].w_v, atol=1e-11)
        np.testing.assert_allclose(states[0].w_f, states[1].w_f, atol=1e-11)
    for run, now in zip(runs, states, strict=True):
        run.check(now)
    assert states[0].dual == pytest.approx(states[1].dual, abs=1e-10)
    assert states[0].primal == pytest.approx(states[1].primal, abs=1e-10)
    # What is kept of the factor's distribution are the marginals of the table's.
    tables = states[1].point.table.reshape(8, 2, 2, 2, 2)
    for j in range(4):
        of_label = tables.sum(axis=tuple(1 + i for i in range(4) if i != j))
        np.testing.assert_allclose(states[0].point.inside.reshape(8, 4, 2)[:, j], of_label, atol=1e-11)


def test_visits_go_on_from_algorithm_1():
    """The labelings that have mass are remembered, too."""
    problem, C = random_labelled(0)
    random = SoftBCFW.algorithm_1(1.0).solve(problem, C, tol=0.0, max_passes=20)
    best = optimum(problem, C)
    result = SoftBCFW().solve(problem, C, tol=1e-4, max_passes=20_000, state=random.state)
    assert result.status is Status.CONVERGED
    assert brackets(result, best)


def test_algorithm_1_resumes_to_the_bit(tmp_path):
    problem, C = random_labelled(3)
    solver, path = SoftBCFW.algorithm_1(1.0), tmp_path / "a.zip"
    whole = solver.solve(problem, C, tol=0.0, max_passes=20)
    solver.solve(problem, C, tol=0.0, max_passes=10, checkpoint=path)
    parts = solver.solve(problem, C, tol=0.0, max_passes=20, checkpoint=path)
    assert (whole.weights == parts.weights).all()
    assert whole.dual == parts.dual


# ------------------------------------------------------------------------------------------------ learned weights


def sets_of_labels(rng, n, n_labels, template, n_features=3):
    """A multi-label problem in which the only factor joins all labels, and labels that it likes."""
    x = rng.normal(size=(n, n_features))
    score = x @ rng.normal(size=(n_features, n_labels)) + 0.5 * rng.normal(size=(n, n_labels))
    labels = (score > np.sort(score, axis=1)[:, [-3]]).astype(np.int32).ravel()
    losses = variable_losses(labels, np.full(n * n_labels, 2), np.full(n, n_labels), "hamming")
    shape = Structure(np.arange(n_labels), np.zeros(n_labels, int), [0], [0], [tuple(range(n_labels))])
    unary = [Template([-1, i]) for i in range(n_labels)]
    return FactorGraphs(
        [shape], np.zeros(n, int), unary, [template], Features(x), Features.constant(), np.arange(n), np.zeros(n, int), labels,
        losses,
    )  # fmt: skip


@pytest.mark.parametrize(
    "template",
    [
        at_most(6, 2),
        cardinality(6, blocks=np.arange(7)),
        chain(6, 2, blocks=np.arange(4)),
        tree([-1, 0, 0, 1, 1, 2], 2, blocks=[0, 1, 1, 0]),
        custom((2,) * 6, 2, parity_maximise, parity_statistics, blocks=[0, 1]),
    ],
    ids=["budget", "count", "chain", "tree", "custom"],
)
def test_weights_are_learned_and_certified(template):
    """One factor over all labels is a forest: exact, and equal to the problem with all labelings written out."""
    problem = sets_of_labels(np.random.default_rng(3), 12, 6, template)
    best = exact_optimum(problem, 20.0)
    result = SoftBCFW().solve(problem, 20.0, tol=1e-4, max_passes=5_000)
    assert result.status is Status.CONVERGED
    assert result.certificate == "exact"
    assert brackets(result, best)
    learned = problem.split_weights(result.weights)[1]
    assert learned.shape[0] == template.blocks.max() + 1
    if len(learned):
        without = sets_of_labels(np.random.default_rng(3), 12, 6, Template(-np.ones((2,) * 6, int)))
        assert np.abs(learned).max() > 1e-3
        assert best < exact_optimum(without, 20.0) - 1e-4


# ------------------------------------------------------------------------------------------------ refusals


def test_labels_that_a_structured_factor_forbids():
    with pytest.raises(DataError, match=r"Example \d+: its own labels are forbidden by the hard constraints\."):
        sets_of_labels(np.random.default_rng(0), 5, 6, at_most(6, 1))


def test_an_earlier_state_of_other_graphs_is_left_alone():
    problem = sets_of_labels(np.random.default_rng(0), 5, 6, at_most(6, 2))
    earlier = SoftBCFW().solve(problem, max_passes=1).state
    pairs = sets_of_labels(np.random.default_rng(0), 5, 6, chain(6, 2))
    warm, afresh = (SoftBCFW().solve(pairs, max_passes=3, state=state) for state in (earlier, None))
    np.testing.assert_array_equal(warm.weights, afresh.weights)
    assert warm.dual == afresh.dual
