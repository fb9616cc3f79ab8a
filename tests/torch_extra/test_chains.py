"""ChainScores against enumeration, against the library's engines, and against pytorch-crf."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from maxmargin.torch import ChainScores, negative_log_likelihood, perceptron, softmax_margin, structured_hinge
from maxmargin.torch.chain_scan import log_scan, scaled_scan
from reference import torch_enumeration as reference

LENGTHS = [4, 1, 3]
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def random_chain(seed=0, per_position=False, boundary=True, dtype=torch.float64, scale=1.0, device="cpu"):
    rng = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        made = scale * torch.randn(*shape, generator=rng, dtype=torch.float64)
        return made.to(dtype).to(device).requires_grad_()

    unary = numbers(3, 4, 3)
    transitions = numbers(3, 3, 3, 3) if per_position else numbers(3, 3)
    ends = (numbers(3), numbers(3)) if boundary else ()
    return (unary, transitions, *ends)


def enumerated(unary, transitions, start=None, end=None, lengths=LENGTHS):
    """Examples for the reference."""
    examples = []
    for m, n in enumerate(lengths):
        rows = list(unary[m, :n])
        if start is not None:
            rows[0] = rows[0] + start
            rows[-1] = rows[-1] + end
        pairs = [(t, t + 1, transitions if transitions.dim() == 2 else transitions[m, t]) for t in range(n - 1)]
        examples.append((torch.stack(rows), pairs))
    return reference.answers(examples)


def made(given, **options):
    return ChainScores(*given, lengths=torch.tensor(LENGTHS, device=given[0].device), **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("per_position", [False, True])
@pytest.mark.parametrize("boundary", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_against_enumeration(per_position, boundary, dtype, device):
    atol = 1e-10 if dtype == torch.float64 else 1e-4
    given = random_chain(1, per_position, boundary, dtype, device=device)
    scores, (log_partition, best, entropy, values) = made(given), enumerated(*given)
    torch.testing.assert_close(scores.log_partition(), log_partition, rtol=0, atol=atol)
    torch.testing.assert_close(scores.entropy(), entropy, rtol=0, atol=atol)
    found = scores.max()
    torch.testing.assert_close(found.values, best, rtol=0, atol=atol)
    assert found.exact.all()
    ranked = scores.top_k(5)
    for m, (n, all_values) in enumerate(zip(LENGTHS, values, strict=True)):
        labels = reference.labelings(n, 3)
        y = tuple(found.labels[m].tolist())
        assert y == labels[int(all_values.argmax())] + (-1,) * (4 - n)
        expected = all_values.sort(descending=True).values[:5]
        torch.testing.assert_close(ranked.values[m, : len(expected)], expected, rtol=0, atol=atol)
        assert ranked.values[m, len(expected) :].isneginf().all()
        assert (ranked.labels[m, len(expected) :] == -1).all()
        for row, value in zip(ranked.labels[m, : len(expected), :n].tolist(), expected, strict=True):
            assert all_values[labels.index(tuple(row))].item() == pytest.approx(value.item(), abs=atol)
    # Gradients: of the log-partition, weighted, and of the entropy.
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=dtype, device=device)
    for mine, theirs in ((scores.log_partition(), log_partition), (scores.entropy(), entropy), (found.values, best)):
        one = torch.autograd.grad((mine * weight).sum(), given, retain_graph=True)
        two = torch.autograd.grad((theirs * weight).sum(), given, retain_graph=True)
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=10 * atol)


@pytest.mark.parametrize("seed", range(20))
def test_random_shapes(seed):
    rng = np.random.default_rng(seed)
    n, length, k = (int(rng.integers(1, most)) for most in (4, 6, 5))
    lengths = [int(rng.integers(1, length + 1)) for _ in range(n)]

    def numbers(*shape):
        return torch.tensor(rng.normal(size=shape) * 3, requires_grad=True)

    given = (
        numbers(n, length, k),
        numbers(n, length - 1, k, k) if rng.random() < 0.5 else numbers(k, k),
        numbers(k),
        numbers(k),
    )
    scores, (log_partition, best, entropy, _) = (
        ChainScores(*given, lengths=lengths),
        enumerated(*given, lengths=lengths),
    )
    for mine, theirs in (
        (scores.log_partition(), log_partition),
        (scores.max().values, best),
        (scores.entropy(), entropy),
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
        one = torch.autograd.grad(mine.sum(), given, retain_graph=True, materialize_grads=True)
        two = torch.autograd.grad(theirs.sum(), given, retain_graph=True, materialize_grads=True)
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("per_position", [False, True])
def test_marginals(per_position):
    given = random_chain(2, per_position)
    scores, values = made(given), enumerated(*given)[3]
    own, pairs = scores.marginals(), scores.pair_marginals()
    assert own.requires_grad
    for m, n in enumerate(LENGTHS):
        p = torch.softmax(values[m], 0)
        labels = torch.tensor(reference.labelings(n, 3))
        for t in range(n):
            expected = torch.stack([p[labels[:, t] == k].sum() for k in range(3)])
            torch.testing.assert_close(own[m, t], expected, rtol=0, atol=1e-12)
        for t in range(n - 1):
            for i in range(3):
                for j in range(3):
                    both = p[(labels[:, t] == i) & (labels[:, t + 1] == j)].sum()
                    assert pairs[m, t, i, j].item() == pytest.approx(both.item(), abs=1e-12)
        assert (own[m, n:] == 0).all()
        assert (pairs[m, max(n - 1, 0) :] == 0).all()


FUNCTIONS = {
    "max": lambda s, y: s.max().values,
    "log_partition": lambda s, y: s.log_partition(),
    "marginals": lambda s, y: s.marginals(),
    "pair_marginals": lambda s, y: s.pair_marginals(),
    "top_k": lambda s, y: s.top_k(2).values[:, :2],
    "entropy": lambda s, y: s.entropy(),
    "score": lambda s, y: s.score(y),
    "hinge": lambda s, y: structured_hinge(s, y, "count", "none"),
    "hinge with a table": lambda s, y: (
        structured_hinge(s, y, torch.ones_like(s.transitions), "none")
        if s.transitions.dim() == 2
        else structured_hinge(s, y, torch.ones_like(s.unary), "none")
    ),
    "log": lambda s, y: negative_log_likelihood(s, y, "token"),
    "softmax-margin": lambda s, y: softmax_margin(s, y, "hamming", "mean"),
    "perceptron": lambda s, y: perceptron(s, y, "sum"),
}
LABELS = torch.tensor([[0, 1, 2, 1], [2, 0, 0, 0], [1, 1, 0, -1]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("per_position", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name, per_position, device):
    given = random_chain(3, per_position, device=device)
    assert gradcheck(lambda *g: FUNCTIONS[name](made(g), LABELS.to(g[0].device)), given)


@pytest.mark.parametrize("per_position", [False, True])
@pytest.mark.parametrize("name", ["log_partition", "log", "softmax-margin"])
def test_double_backward(name, per_position):
    given = random_chain(4, per_position)
    assert gradgradcheck(lambda *g: FUNCTIONS[name](made(g), LABELS), given)


def test_third_derivatives():
    unary, transitions = random_chain(5, boundary=False)
    value = ChainScores(unary, transitions).log_partition().sum()
    first = torch.autograd.grad(value, unary, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0, 0].sum(), unary, create_graph=True)[0]
    assert torch.autograd.grad(second[:, 0, 0].sum(), unary)[0].abs().sum() > 0


def test_the_library_says_the_same():
    pytest.importorskip("numba", reason="Numba is not installed")
    from maxmargin.inference import Trees, top_k
    from maxmargin.problems import Features, Scores, chain_problem

    rng = np.random.default_rng(0)
    lengths = [5, 2, 7, 1]
    given = torch.tensor(rng.normal(size=(4, 7, 4)))
    transitions = torch.tensor(rng.normal(size=(4, 4)))
    rows = np.concatenate([given[m, :n].numpy() for m, n in enumerate(lengths)])
    graphs = chain_problem(Features(rows), None, 4, boundary=False, lengths=lengths)
    tables = Scores(rows.ravel(), np.tile(transitions.numpy().ravel(), sum(lengths) - len(lengths)))
    mine = ChainScores(given, transitions, lengths=lengths)
    inside = torch.arange(7) < torch.tensor(lengths)[:, None]
    theirs, found = Trees().marginals(graphs, tables), Trees().maximise(graphs, tables)
    np.testing.assert_allclose(mine.log_partition(), theirs.log_partition, rtol=0, atol=1e-10)
    np.testing.assert_allclose(mine.marginals()[inside].ravel(), theirs.variables, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(mine.max().labels[inside], found.labels)
    ranked = top_k(graphs, tables, 3)
    np.testing.assert_allclose(mine.top_k(3).values, ranked.values, rtol=0, atol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
def test_pytorch_crf_says_the_same(masked):
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    torch.manual_seed(0)
    crf = torchcrf.CRF(5, batch_first=True)
    emissions, tags = torch.randn(6, 9, 5, requires_grad=True), torch.randint(5, (6, 9))
    mask = torch.arange(9) < torch.tensor([9, 3, 1, 9, 5, 2] if masked else [9] * 6)[:, None]
    scores = ChainScores(
        emissions, crf.transitions, crf.start_transitions, crf.end_transitions, mask=mask if masked else None
    )
    parameters = [emissions, *crf.parameters()]
    for theirs, mine in (("none", "none"), ("sum", "sum"), ("mean", "mean"), ("token_mean", "token")):
        expected = -crf(emissions, tags, mask, reduction=theirs)
        found = negative_log_likelihood(scores, tags, mine)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for a, b in zip(
            torch.autograd.grad(found.sum(), parameters, retain_graph=True),
            torch.autograd.grad(expected.sum(), parameters),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    labels = [row[row >= 0].tolist() for row in scores.max().labels]
    assert labels == crf.decode(emissions, mask)


def test_draws_have_the_marginals():
    given = [one.detach() for one in random_chain(7)]
    scores = made(given)
    drawn = scores.sample(20_000, torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 3, 4)
    for m, n in enumerate(LENGTHS):
        assert (drawn[:, m, n:] == -1).all()
    shares = torch.stack([(drawn == k).double().mean(0) for k in range(3)], 2)
    # Five standard errors of a share of 20,000.
    torch.testing.assert_close(shares, scores.marginals(), rtol=0, atol=5 * 0.5 / 20_000**0.5)
    assert (
        scores.sample(3, torch.Generator().manual_seed(1)) == scores.sample(3, torch.Generator().manual_seed(1))
    ).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [30.0, 300.0, 3000.0])
def test_scores_of_any_size(scale, dtype):
    """Where scaled messages underflow, the log-semiring takes over."""
    given = random_chain(8, dtype=dtype, scale=scale)
    scores, (log_partition, *_) = made(given), enumerated(*given)
    rtol = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(scores.log_partition(), log_partition, rtol=rtol, atol=rtol)
    one = torch.autograd.grad(scores.log_partition().sum(), given)
    two = torch.autograd.grad(log_partition.sum(), given)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10 if dtype == torch.float64 else 2e-3)


def test_the_scaled_scan_knows_when_it_is_wrong():
    unary = torch.tensor([[[0.0, -200.0], [0.0, 0.0]]])
    transitions = torch.tensor([[-400.0, -400.0], [0.0, 0.0]])
    assert scaled_scan(unary, transitions, None)[1] is None
    torch.testing.assert_close(
        ChainScores(unary, transitions).log_partition(), log_scan(unary, transitions, None), rtol=0, atol=1e-4
    )


def test_long_chains():
    torch.manual_seed(0)
    unary, transitions = 3 * torch.randn(2, 500, 6), torch.randn(6, 6)
    lengths = torch.tensor([500, 123])
    expected = log_scan(unary.double(), transitions.double(), lengths)
    found = ChainScores(unary, transitions, lengths=lengths).log_partition()
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("how", ["forbidden", "minus infinity"])
def test_forbidden_transitions(how):
    unary, transitions = (one.detach() for one in random_chain(9, boundary=False))
    wrong = torch.tensor([[True, False, False], [False, False, True], [False, True, False]])
    blocked = torch.where(wrong, -torch.inf, transitions).requires_grad_()
    scores = (
        ChainScores(unary, transitions.requires_grad_(), lengths=LENGTHS, forbidden=wrong)
        if how == "forbidden"
        else ChainScores(unary, blocked, lengths=LENGTHS)
    )
    log_partition, best, _, values = enumerated(unary, blocked)
    torch.testing.assert_close(scores.log_partition(), log_partition, rtol=0, atol=1e-10)
    torch.testing.assert_close(scores.max().values, best, rtol=0, atol=1e-10)
    found = scores.top_k(20)
    for m, one in enumerate(values):
        assert int((~found.values[m].isneginf()).sum()) == min(20, int((~one.isneginf()).sum()))
    leaf = transitions if how == "forbidden" else blocked
    for loss in (scores.log_partition().sum(), scores.entropy().sum()):
        gradient = torch.autograd.grad(loss, leaf, retain_graph=True)[0]
        assert torch.isfinite(gradient).all()
        assert (gradient[wrong] == 0).all()
    assert scores.score(torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]])).isneginf().tolist() == [
        True,
        False,
        False,
    ]


def test_costs_are_those_of_the_library():
    pytest.importorskip("numba", reason="Numba is not installed")
    from maxmargin.problems.losses import variable_losses

    given = [one.detach() for one in random_chain(10)]
    scores, inside = made(given), torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    labels = LABELS[inside].numpy().astype(np.int32)
    table = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
    for cost in ("hamming", "fraction", "count"):
        expected = variable_losses(labels, np.full(8, 3), np.array(LENGTHS), cost)
        np.testing.assert_allclose(scores.costs(LABELS, cost)[inside].ravel(), expected, rtol=1e-15)
    np.testing.assert_array_equal(scores.costs(LABELS, torch.tensor(table))[inside], table[labels])


def test_hinge_is_the_largest_violation():
    given = random_chain(11)
    scores = made(given)
    found = structured_hinge(scores, LABELS, "count", "none")
    assert scores.solved == "exact"
    values = enumerated(*given)[3]
    for m, n in enumerate(LENGTHS):
        truth = tuple(LABELS[m, :n].tolist())
        labels = reference.labelings(n, 3)
        cost = torch.tensor([float(sum(a != b for a, b in zip(y, truth, strict=True))) for y in labels])
        expected = (values[m] + cost).max() - values[m][labels.index(truth)]
        torch.testing.assert_close(found[m], expected, rtol=0, atol=1e-10)
        softened = torch.logsumexp(values[m] + cost, 0) - values[m][labels.index(truth)]
        torch.testing.assert_close(softmax_margin(scores, LABELS, "count", "none")[m], softened, rtol=0, atol=1e-10)


def test_half_precision_becomes_single():
    unary, transitions = torch.randn(2, 3, 4), torch.randn(4, 4)
    found = ChainScores(unary.bfloat16(), transitions.bfloat16()).log_partition()
    assert found.dtype == torch.float32


def test_padding_may_hold_anything():
    unary, transitions = (one.detach() for one in random_chain(12, boundary=False))
    spoiled = unary.clone()
    for m, n in enumerate(LENGTHS):
        spoiled[m, n:] = torch.nan
    spoiled.requires_grad_()
    scores = ChainScores(spoiled, transitions, lengths=LENGTHS)
    torch.testing.assert_close(scores.log_partition(), ChainScores(unary, transitions, lengths=LENGTHS).log_partition())
    assert torch.isfinite(torch.autograd.grad(scores.log_partition().sum(), spoiled)[0]).all()
