"""FactorGraphScores against enumeration, exact and relaxed."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from maxmargin.errors import DataError, MaxMarginError, OptionError, TooLargeError
from maxmargin.inference import GraphCut
from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.torch import FactorGraphScores, negative_log_likelihood, perceptron, softmax_margin, structured_hinge
from reference import torch_enumeration as reference

RING = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
SIZES = [4, 3]
OWN = [RING, [(0, 1), (2, 1)]]
LABELS = torch.tensor([[0, 1, 2, 1], [2, 0, 1, -1]])


def numbers(seed, *shapes, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def table(pairwise, m, e):
    return pairwise if pairwise.dim() == 2 else pairwise[e] if pairwise.dim() == 3 else pairwise[m, e]


def enumerated(unary, pairwise):
    return reference.answers(
        [
            (unary[m, :n], [(i, j, table(pairwise, m, e)) for e, (i, j) in enumerate(OWN[m])])
            for m, n in enumerate(SIZES)
        ]
    )


def made(given, **options):
    return FactorGraphScores(*given, [np.array(one) for one in OWN], lengths=SIZES, **options)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3, 3), (2, 5, 3, 3)])
@pytest.mark.parametrize("engine", ["auto", "junction_tree", "exhaustive"])
def test_against_enumeration(shape, engine):
    given = numbers(0, (2, 4, 3), shape)
    scores, (log_partition, best, entropy, values) = made(given, inference=engine), enumerated(*given)
    found = scores.max()
    assert found.exact.all()
    assert scores.solved == "exact"
    for mine, theirs in ((scores.log_partition(), log_partition), (found.values, best)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
        one = torch.autograd.grad(mine.sum(), given, retain_graph=True)
        two = torch.autograd.grad(theirs.sum(), given, retain_graph=True)
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    torch.testing.assert_close(scores.entropy(), entropy, rtol=0, atol=1e-10)
    for m, n in enumerate(SIZES):
        labels = reference.labelings(n, 3)
        assert tuple(found.labels[m].tolist()) == labels[int(values[m].argmax())] + (-1,) * (4 - n)
        p, states = torch.softmax(values[m], 0), torch.tensor(labels)
        for i in range(n):
            own = torch.stack([p[states[:, i] == k].sum() for k in range(3)])
            torch.testing.assert_close(scores.marginals()[m, i], own, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    n, size, k = 2, int(rng.integers(2, 6)), int(rng.integers(2, 4))
    every = [(i, j) if rng.random() < 0.5 else (j, i) for i in range(size) for j in range(i)]
    edges = [every[e] for e in sorted(rng.choice(len(every), int(rng.integers(1, len(every) + 1)), replace=False))]
    unary, pairwise = numbers(seed, (n, size, k), (n, len(edges), k, k))
    scores = FactorGraphScores(unary, pairwise, edges)
    log_partition, best, entropy, values = reference.answers(
        [(unary[m], [(i, j, pairwise[m, e]) for e, (i, j) in enumerate(edges)]) for m in range(n)]
    )
    torch.testing.assert_close(scores.log_partition(), log_partition, rtol=0, atol=1e-10)
    torch.testing.assert_close(scores.max().values, best, rtol=0, atol=1e-10)
    torch.testing.assert_close(scores.entropy(), entropy, rtol=0, atol=1e-10)
    mine = torch.autograd.grad(scores.log_partition().sum(), (unary, pairwise))
    for a, b in zip(mine, torch.autograd.grad(log_partition.sum(), (unary, pairwise), retain_graph=True), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    truth = torch.tensor(rng.integers(k, size=(n, size)))
    cost = torch.tensor(
        [[float((truth[m] != torch.tensor(y)).sum()) for y in reference.labelings(size, k)] for m in range(n)]
    )
    expected = torch.stack([(values[m] + cost[m]).max() for m in range(n)]) - scores.score(truth)
    exact = structured_hinge(scores, truth, "count", "none")
    torch.testing.assert_close(exact, expected, rtol=0, atol=1e-10)
    if k == 2:
        cut = FactorGraphScores(unary, pairwise, edges, inference="graph_cut")
        relaxed = structured_hinge(cut, truth, "count", "none")
        assert (relaxed >= exact - 1e-9).all()
        if cut.solved == "exact":
            torch.testing.assert_close(relaxed, exact, rtol=0, atol=1e-9)


FUNCTIONS = {
    "max": lambda s: s.max().values,
    "log_partition": lambda s: s.log_partition(),
    "score": lambda s: s.score(LABELS),
    "hinge": lambda s: structured_hinge(s, LABELS, "count", "none"),
    "log": lambda s: negative_log_likelihood(s, LABELS),
    "softmax-margin": lambda s: softmax_margin(s, LABELS, "fraction"),
    "perceptron": lambda s: perceptron(s, LABELS),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name):
    assert gradcheck(lambda *g: FUNCTIONS[name](made(g)), numbers(1, (2, 4, 3), (5, 3, 3)))


def test_the_relaxed_hinge_is_said_to_be_relaxed():
    """A triangle whose pairs all want to differ: the relaxation is a half everywhere."""
    unary = torch.zeros(1, 3, 2, dtype=torch.float64, requires_grad=True)
    pairwise = torch.tensor([[0.0, 5.0], [5.0, 0.0]], dtype=torch.float64, requires_grad=True)
    edges, labels = [(0, 1), (1, 2), (2, 0)], torch.tensor([[0, 1, 0]])
    exact = FactorGraphScores(unary, pairwise, edges)
    lower = structured_hinge(exact, labels, "count")
    assert exact.solved == "exact"
    relaxed = FactorGraphScores(unary, pairwise, edges, inference=GraphCut())
    upper = structured_hinge(relaxed, labels, "count")
    assert relaxed.solved == "relaxed"
    # All pairs differ half and half: 15, and each label costs a half.
    torch.testing.assert_close(upper, torch.tensor(15.0 + 1.5 - 10.0, dtype=torch.float64))
    assert lower < upper
    gradient = torch.autograd.grad(upper, unary)[0]
    torch.testing.assert_close(gradient, torch.tensor([[[-0.5, 0.5], [0.5, -0.5], [-0.5, 0.5]]], dtype=torch.float64))


def test_approximate_maxima_are_said_to_be_so():
    given = numbers(2, (2, 4, 3), (5, 3, 3))
    scores = made(given, inference="greedy")
    found = scores.max()
    assert scores.solved == "approximate"
    assert (found.values <= enumerated(*given)[1] + 1e-10).all()


def test_what_is_out_of_reach():
    n = 12
    grid = [(i * n + j, i * n + j + 1) for i in range(n) for j in range(n - 1)]
    grid += [(i * n + j, i * n + j + n) for i in range(n - 1) for j in range(n)]
    unary, pairwise = torch.randn(1, n * n, 5), torch.randn(5, 5)
    scores = FactorGraphScores(unary, pairwise, grid)
    with pytest.raises(TooLargeError, match=r"JunctionTree\(limit=...\).*structured_hinge or perceptron"):
        scores.log_partition()
    with pytest.raises(DataError, match="top_k needs graphs without cycles"):
        scores.top_k(2)
    with pytest.raises(OptionError, match="has no exact marginals"):
        FactorGraphScores(unary, pairwise, grid, inference="greedy").marginals()
    given = numbers(3, (2, 4, 3), (5, 3, 3))
    first = torch.autograd.grad(made(given).log_partition().sum(), given[0], create_graph=True)[0]
    with pytest.raises(MaxMarginError, match="ChainScores and TreeScores can be differentiated twice"):
        torch.autograd.grad(first.sum(), given[0])


def test_draws_have_the_marginals():
    given = [one.detach() for one in numbers(4, (2, 4, 3), (5, 3, 3))]
    scores = made(given)
    drawn = scores.sample(2000, torch.Generator().manual_seed(0))
    shares = torch.stack([(drawn == k).double().mean(0) for k in range(3)], 2)
    torch.testing.assert_close(shares, scores.marginals(), rtol=0, atol=5 * 0.5 / 2000**0.5)


def test_any_factor_graph():
    """Two variables of different sizes, a factor of three, flat scores."""
    graphs = FactorGraphs(
        [Structure([0, 1, 0], [0, 0, 0], [0, 1], [0, 0], [(0, 1), (0, 1, 2)])],
        [0, 0],
        [Template(np.full(2, -1)), Template(np.full(3, -1))],
        [Template(np.full((2, 3), -1)), Template(np.full((2, 3, 2), -1))],
        Features.constant(), Features.constant(), [0, 0], [0, 0],
    )  # fmt: skip
    variables, factors = numbers(5, (14,), (36,))
    scores = FactorGraphScores.from_graphs(graphs, variables, factors)
    values = []
    for m in range(2):
        v, f = variables[7 * m :], factors[18 * m :]
        values.append(
            torch.stack(
                [
                    v[a] + v[2 + b] + v[5 + c] + f[3 * a + b] + f[6 + 6 * a + 2 * b + c]
                    for a in range(2)
                    for b in range(3)
                    for c in range(2)
                ]
            )
        )
    torch.testing.assert_close(scores.log_partition(), torch.stack([torch.logsumexp(one, 0) for one in values]))
    torch.testing.assert_close(scores.max().values, torch.stack([one.max() for one in values]))
    labels = torch.tensor([0, 2, 1, 1, 0, 0])
    torch.testing.assert_close(scores.score(labels), torch.stack([values[0][5], values[1][6]]))
    for function in (lambda v, f: FactorGraphScores.from_graphs(graphs, v, f).log_partition(),):
        assert gradcheck(function, (variables, factors))
    assert structured_hinge(scores, labels, "count", "none").min() >= 0
    assert scores.marginals().shape == (14,)
    assert scores.sample(2).shape == (2, 6)
    with pytest.raises(DataError, match="Label 1 is 3; expected a state from 0 to 2"):
        scores.score(torch.tensor([0, 3, 1, 1, 0, 0]))
