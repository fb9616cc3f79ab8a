"""ChainLayer: losses, decoding, constraints, and the way to ChainSVM and back."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import maxmargin as mm
from maxmargin.errors import DataError, OptionError
from maxmargin.torch import ChainLayer, negative_log_likelihood, perceptron, softmax_margin, structured_hinge

BIO = ["B-NP", "B-VP", "I-NP", "I-VP", "O"]
RNG = np.random.default_rng(0)


def batch(n_tags=5):
    torch.manual_seed(0)
    mask = torch.arange(6) < torch.tensor([6, 2, 1])[:, None]
    return torch.randn(3, 6, n_tags), torch.randint(n_tags, (3, 6)), mask


def test_losses_by_name():
    layer, (emissions, tags, mask) = ChainLayer(5), batch()
    scores = layer.scores(emissions, mask)
    for kind, expected in (
        ("hinge", structured_hinge(scores, tags)),
        ("log", negative_log_likelihood(scores, tags)),
        ("softmax-margin", softmax_margin(scores, tags)),
        ("perceptron", perceptron(scores, tags)),
    ):
        torch.testing.assert_close(layer.loss(emissions, tags, mask, kind), expected)
        assert layer(emissions, tags, mask, kind=kind, reduction="none").shape == (3,)
    assert {name for name, _ in layer.named_parameters()} == {"transitions", "start", "end"}
    assert {name for name, _ in ChainLayer(5, boundary=False).named_parameters()} == {"transitions"}
    assert "n_tags=5" in repr(layer)


def test_a_batch_of_training():
    layer, linear = ChainLayer(3), nn.Linear(4, 3)
    torch.manual_seed(0)
    x, tags = torch.randn(8, 5, 4), torch.randint(3, (8, 5))
    optimiser = torch.optim.SGD([*layer.parameters(), *linear.parameters()], 0.05)
    for kind in ("hinge", "log"):
        values = []
        for _ in range(10):
            loss = layer.loss(linear(x), tags, kind=kind)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            values.append(loss.item())
        assert values[-1] < values[0]


def test_bio_is_kept_to():
    layer = ChainLayer(5, bio=BIO)
    emissions = 5 * torch.randn(50, 6, 5, generator=torch.Generator().manual_seed(0))
    for tags in layer.decode(emissions):
        names = ["O", *(BIO[k] for k in tags)]
        for before, after in pairwise(names):
            assert after[0] != "I" or before[2:] == after[2:]
    with pytest.raises(DataError, match="Example 0: its labels are forbidden"):
        layer.loss(emissions[:1], torch.tensor([[4, 2, 4, 4, 4, 4]]))
    again = ChainLayer(5, bio=BIO)
    again.load_state_dict(layer.state_dict())
    assert again.decode(emissions) == layer.decode(emissions)


@pytest.mark.parametrize("forbidden", [[(0, 1), (2, 2)], np.eye(5, dtype=bool)])
def test_forbidden_pairs(forbidden):
    layer = ChainLayer(5, forbidden=forbidden)
    wrong = {tuple(pair) for pair in (np.argwhere(forbidden) if isinstance(forbidden, np.ndarray) else forbidden)}
    for tags in layer.decode(5 * torch.randn(50, 6, 5, generator=torch.Generator().manual_seed(0))):
        assert not wrong & set(pairwise(tags))


def test_options_that_cannot_be():
    for options, words in (
        ({"n_tags": 0}, "n_tags=0 is not possible"),
        ({"n_tags": 2, "forbidden": [(0, 5)]}, r"forbidden has the entry \(0, 5\)"),
        ({"n_tags": 2, "forbidden": "no"}, "forbidden='no' is not possible"),
        ({"n_tags": 2, "forbidden": np.eye(3, dtype=bool)}, r"of shape \(2, 2\)"),
        ({"n_tags": 2, "bio": ["O"]}, "bio has 1 names"),
        ({"n_tags": 2, "bio": ["O", "X"]}, "bio has the name 'X'"),
    ):
        with pytest.raises(OptionError, match=words):
            ChainLayer(**options)
    layer, (emissions, tags, mask) = ChainLayer(5), batch()
    with pytest.raises(OptionError, match='Did you mean "hinge"'):
        layer.loss(emissions, tags, mask, "hinges")
    with pytest.raises(DataError, match=r"expected \(batch, length, 5\)"):
        layer.decode(emissions[:, :, :4])


def words(n=30, p=4):
    names = np.array(BIO)
    X = [RNG.normal(size=(RNG.integers(1, 7), p)) for _ in range(n)]
    y = []
    for one in X:
        tags = ["O"]
        for row in one:
            choices = [t for t in names if t[0] != "I" or t[2:] == tags[-1][2:]]
            tags.append(choices[int(abs(row.sum()) * 3) % len(choices)])
        y.append(tags[1:])
    return X, y


@pytest.mark.parametrize(
    "options", [{}, {"bio": True}, {"boundary": False}, {"fit_intercept": False, "forbidden": [("O", "B-VP")]}]
)
def test_to_a_chain_svm_and_back(options):
    X, y = words()
    if "forbidden" in options:
        X, y = zip(
            *((x, t) for x, t in zip(X, y, strict=True) if ("O", "B-VP") not in pairwise(t)),
            strict=True,
        )
    model = mm.ChainSVM(C=10, max_passes=5, **options).fit(list(X), list(y))
    layer, linear = ChainLayer.from_svm(model)
    for x in X:
        emissions = linear(torch.tensor(x))[None]
        assert model.classes_[layer.decode(emissions)[0]].tolist() == model.predict([x])[0].tolist()
        np.testing.assert_allclose(
            layer.scores(emissions).max().values.detach(), model.decision_function([x]), atol=1e-10
        )
    given = {name: value for name, value in options.items() if name in ("bio", "forbidden")}
    again = layer.to_svm(linear, model.classes_.tolist(), C=10, **given)
    assert again.result_.certificate == "none"
    for one, two in zip(again.predict(list(X)), model.predict(list(X)), strict=True):
        assert one.tolist() == two.tolist()
    np.testing.assert_array_equal(again.transition_coef_, model.transition_coef_)
    np.testing.assert_allclose(again.decision_function(list(X)), model.decision_function(list(X)), atol=1e-10)
    proba = again.predict_proba(X[:1])[0]
    np.testing.assert_allclose(
        proba, layer.scores(linear(torch.tensor(X[0]))[None]).marginals()[0].detach(), atol=1e-10
    )


def test_models_that_are_no_chain_layers():
    X, y = words()
    with pytest.raises(OptionError, match="needs a fitted ChainSVM"):
        ChainLayer.from_svm(mm.ChainSVM())
    model = mm.ChainSVM(C=1, order=2, max_passes=1).fit(X, y)
    with pytest.raises(OptionError, match="order=1 at most"):
        ChainLayer.from_svm(model)


def test_the_hinge_of_a_batch_is_that_of_the_library():
    """The primal value of ChainSVM is the mean hinge of this loss, and what the weights cost."""
    X, y = words()
    model = mm.ChainSVM(C=10, tol=1e-4).fit(X, y)
    layer, linear = ChainLayer.from_svm(model)
    lengths = torch.tensor([len(one) for one in X])
    padded = torch.zeros(len(X), int(lengths.max()), 4, dtype=torch.float64)
    tags = torch.zeros(padded.shape[:2], dtype=torch.long)
    for m, one in enumerate(X):
        padded[m, : len(one)] = torch.tensor(one)
        tags[m, : len(one)] = torch.tensor([model.classes_.tolist().index(t) for t in y[m]])
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    hinge = layer.loss(linear(padded), tags, mask, "hinge", "hamming").item()
    weights = model.result_.weights
    assert hinge + weights @ weights / (2 * model.C_) == pytest.approx(model.result_.primal, abs=1e-9)
