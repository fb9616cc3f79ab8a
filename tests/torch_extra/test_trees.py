"""TreeScores against enumeration and the library's engine of trees."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from maxmargin.torch import TreeScores, negative_log_likelihood, perceptron, softmax_margin, structured_hinge
from reference import torch_enumeration as reference

SIZES = [5, 1, 4]
PARENTS = torch.tensor([[-1, 0, 0, 2, -1], [-1, 7, 7, 7, 7], [2, 2, 3, -1, -5]])
LABELS = torch.tensor([[0, 1, 2, 1, 0], [2, 0, 0, 0, 9], [1, 1, 0, 2, -1]])
EDGES = [(3, 1), (1, 0), (2, 1)]


def numbers(seed, *shapes, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def table(pairwise, m, i):
    return pairwise if pairwise.dim() == 2 else pairwise[i] if pairwise.dim() == 3 else pairwise[m, i]


def enumerated(unary, pairwise):
    examples = []
    for m, n in enumerate(SIZES):
        parents = PARENTS[m, :n].tolist()
        pairs = [(p, i, table(pairwise, m, i)) for i, p in enumerate(parents) if p >= 0]
        examples.append((unary[m, :n], pairs))
    return reference.answers(examples)


def made(given):
    return TreeScores(*given, parents=PARENTS, lengths=SIZES)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3, 3), (3, 5, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_against_enumeration(shape, dtype):
    atol = 1e-10 if dtype == torch.float64 else 1e-4
    given = numbers(0, (3, 5, 3), shape, dtype=dtype)
    scores, (log_partition, best, entropy, values) = made(given), enumerated(*given)
    found, ranked = scores.max(), scores.top_k(4)
    for mine, theirs in ((scores.log_partition(), log_partition), (found.values, best), (scores.entropy(), entropy)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=atol)
        one = torch.autograd.grad(mine.sum(), given, retain_graph=True)
        two = torch.autograd.grad(theirs.sum(), given, retain_graph=True)
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=10 * atol)
    for m, n in enumerate(SIZES):
        labels = reference.labelings(n, 3)
        assert tuple(found.labels[m].tolist()) == labels[int(values[m].argmax())] + (-1,) * (5 - n)
        expected = values[m].sort(descending=True).values[:4]
        torch.testing.assert_close(ranked.values[m, : len(expected)], expected, rtol=0, atol=atol)
        p, states = torch.softmax(values[m], 0), torch.tensor(labels)
        for i in range(n):
            own = torch.stack([p[states[:, i] == k].sum() for k in range(3)])
            torch.testing.assert_close(scores.marginals()[m, i], own, rtol=0, atol=atol)
    assert ranked.values[1, 3:].isneginf().all()


FUNCTIONS = {
    "max": lambda s: s.max().values,
    "log_partition": lambda s: s.log_partition(),
    "marginals": lambda s: s.marginals(),
    "entropy": lambda s: s.entropy(),
    "top_k": lambda s: s.top_k(2).values,
    "score": lambda s: s.score(LABELS),
    "hinge": lambda s: structured_hinge(s, LABELS, "count"),
    "log": lambda s: negative_log_likelihood(s, LABELS),
    "softmax-margin": lambda s: softmax_margin(s, LABELS),
    "perceptron": lambda s: perceptron(s, LABELS),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name):
    assert gradcheck(lambda *g: FUNCTIONS[name](made(g)), numbers(1, (3, 5, 3), (5, 3, 3)))


def test_double_backward():
    assert gradgradcheck(lambda *g: made(g).log_partition(), numbers(2, (3, 5, 3), (3, 3)))


def test_edges_in_any_direction():
    unary, pairwise = numbers(3, (2, 4, 3), (3, 3, 3))
    scores = TreeScores(unary, pairwise, edges=EDGES)
    log_partition, best, _, _ = reference.answers(
        [(unary[m], [(a, b, pairwise[e]) for e, (a, b) in enumerate(EDGES)]) for m in range(2)]
    )
    torch.testing.assert_close(scores.log_partition(), log_partition)
    torch.testing.assert_close(scores.max().values, best)
    torch.testing.assert_close(scores.score(scores.max().labels), best)


def test_no_edges_at_all():
    unary, pairwise = numbers(4, (2, 3, 2), (0, 2, 2))
    scores = TreeScores(unary, pairwise, edges=[])
    torch.testing.assert_close(scores.log_partition(), torch.logsumexp(unary, 2).sum(1))


def test_draws_have_the_marginals():
    unary, pairwise = (one.detach() for one in numbers(5, (3, 5, 3), (3, 3)))
    scores = made((unary, pairwise))
    drawn = scores.sample(4000, torch.Generator().manual_seed(0))
    shares = torch.stack([(drawn == k).double().mean(0) for k in range(3)], 2)
    torch.testing.assert_close(shares, scores.marginals(), rtol=0, atol=5 * 0.5 / 4000**0.5)


def test_forbidden_states():
    unary, pairwise = (one.detach() for one in numbers(6, (3, 5, 3), (3, 3)))
    pairwise[0, 0] = -torch.inf
    unary[0, 1, 1] = -torch.inf
    scores, (log_partition, best, _, values) = made((unary, pairwise)), enumerated(unary, pairwise)
    torch.testing.assert_close(scores.log_partition(), log_partition)
    torch.testing.assert_close(scores.max().values, best)
    found = scores.top_k(500).values
    for m in range(3):
        assert int((~found[m].isneginf()).sum()) == int((~values[m].isneginf()).sum())
