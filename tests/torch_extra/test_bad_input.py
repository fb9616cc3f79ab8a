"""What cannot be, a sentence each."""

import numpy as np
import pytest
import torch

from maxmargin.errors import DataError, OptionError
from maxmargin.torch import ChainScores, FactorGraphScores, TreeScores, negative_log_likelihood, structured_hinge

U, A = torch.randn(2, 4, 3), torch.randn(3, 3)
HOLES = torch.tensor([[True, True, True, True], [True, False, True, False]])
LATE = torch.tensor([[True, True, True, True], [False, True, True, False]])
EMPTY = torch.tensor([[True, True, True, True], [False] * 4])
EDGES = [(0, 1), (1, 2), (2, 3), (3, 0)]
PARENTS = [-1, 0, 1, 0]

KINDS = {
    "chain": lambda u, a, **more: ChainScores(u, a, **more),
    "tree": lambda u, a, **more: TreeScores(u, a, parents=PARENTS, **more),
    "graph": lambda u, a, **more: FactorGraphScores(u, a, EDGES[:3], **more),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": HOLES}, "The mask of example 1 has a hole"),
        ({"mask": LATE}, "The mask of example 1 has a hole"),
        ({"mask": EMPTY}, "The mask leaves example 1 without a variable"),
        ({"mask": torch.ones(2, 3, dtype=torch.bool)}, r"mask has shape \(2, 3\); expected \(2, 4\)"),
        ({"mask": torch.ones(2, 4)}, "expected a bool tensor"),
        ({"mask": [[True]]}, "mask is list; expected a bool tensor"),
        ({"lengths": [4, 0]}, r"lengths\[1\] is 0; every example needs at least 1"),
        ({"lengths": [5, 4]}, r"lengths\[0\] is 5, but the scores have fewer positions"),
        ({"lengths": [4]}, r"expected \(2,\) whole numbers"),
        ({"lengths": [4.0, 2.0]}, "whole numbers"),
        ({"u": torch.full_like(U, torch.nan)}, "unary holds NaN"),
        ({"u": torch.full_like(U, torch.inf)}, r"unary holds \+inf"),
        ({"a": torch.full_like(A, torch.nan)}, "holds NaN"),
        ({"u": U[0]}, r"unary has shape \(4, 3\); expected \(any, any, any\)"),
        ({"u": U[:0]}, "there must be an example"),
        ({"u": U.long()}, "unary has dtype torch.int64; expected float32 or float64"),
        ({"u": U.numpy()}, "unary is of type ndarray; expected a tensor"),
        ({"a": torch.randn(2, 3)}, r"has shape \(2, 3\); expected \(3, 3\)"),
        ({"a": A.double()}, "differ in dtype: torch.float32 and torch.float64"),
        ({"a": A.to("meta")}, "differ in device: cpu and meta"),
        ({"mask": torch.ones(2, 4, dtype=torch.bool, device="meta")}, "mask is on the device meta, the scores on cpu"),
        ({"lengths": torch.ones(2, dtype=torch.long, device="meta")}, "lengths is on the device meta"),
    ],
)
def test_scores(kind, change, words):
    with pytest.raises(DataError, match=words):
        KINDS[kind](**({"u": U, "a": A} | change))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0]]), r"Label \[0, 3\] is 3; expected a state from 0 to 2"),
        (torch.tensor([[0, 1, 2, 0], [0, -1, 0, 0]]), r"Label \[1, 1\] is -1"),
        (torch.zeros(2, 3, dtype=torch.long), r"labels have shape \(2, 3\)"),
        (torch.zeros(2, 4), "whole numbers"),
        (np.zeros((2, 4), int), "of type ndarray; expected a tensor"),
        (torch.zeros(2, 4, dtype=torch.long, device="meta"), "labels is on the device meta, the scores on cpu"),
    ],
)
def test_labels(kind, labels, words):
    with pytest.raises(DataError, match=words):
        negative_log_likelihood(KINDS[kind](U, A), labels)


@pytest.mark.parametrize("kind", KINDS)
def test_options(kind):
    scores, labels = KINDS[kind](U, A), torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(OptionError, match="Both lengths and mask"):
        KINDS[kind](U, A, lengths=[4, 4], mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(OptionError, match=r"reduction='means' is not known.*Did you mean .mean"):
        structured_hinge(scores, labels, reduction="means")
    with pytest.raises(OptionError, match="cost='hammin' is not known"):
        structured_hinge(scores, labels, "hammin")
    with pytest.raises(OptionError, match="cost=3 is not possible"):
        structured_hinge(scores, labels, 3)
    with pytest.raises(DataError, match=r"cost has shape \(2, 2\)"):
        structured_hinge(scores, labels, torch.zeros(2, 2))
    with pytest.raises(DataError, match="cost must hold finite numbers"):
        structured_hinge(scores, labels, -torch.ones(3, 3))
    for bad in (0, 1.5, True):
        with pytest.raises(OptionError, match=r"k=.* is not possible"):
            scores.top_k(bad)
        with pytest.raises(OptionError, match=r"n=.* is not possible"):
            scores.sample(bad)


def test_nothing_is_allowed():
    nothing = torch.full_like(A, -torch.inf)
    for kind in ("chain", "tree", "graph"):
        scores = KINDS[kind](U, nothing)
        for answer in (scores.log_partition, scores.max, lambda scores=scores: scores.top_k(2), scores.sample):
            with pytest.raises(DataError, match="every labeling is forbidden"):
                answer()
    with pytest.raises(DataError, match=r"forbidden must be a bool tensor of shape \(3, 3\)"):
        ChainScores(U, A, forbidden=A)


def test_forests():
    with pytest.raises(OptionError, match="by parents or by edges"):
        TreeScores(U, A)
    with pytest.raises(DataError, match="go round in a circle"):
        TreeScores(U, A, parents=[1, 0, -1, -1])
    with pytest.raises(DataError, match="the parent of node 1 is 4; expected -1 or one of its 4 nodes"):
        TreeScores(U, A, parents=[-1, 4, 0, 0])
    with pytest.raises(DataError, match="the parent of node 2 is 3; expected -1 or one of its 3 nodes"):
        TreeScores(U, A, parents=[-1, 0, 3, 0], lengths=[3, 4])
    with pytest.raises(DataError, match="parents has shape"):
        TreeScores(U, A, parents=[-1, 0])
    with pytest.raises(DataError, match="The edges have a cycle"):
        TreeScores(U, A, edges=EDGES)
    with pytest.raises(DataError, match="edges name node 9"):
        TreeScores(U, A, edges=[(0, 9)])
    with pytest.raises(DataError, match="edges has shape"):
        TreeScores(U, A, edges=[(0, 1, 2)])


def test_graphs():
    with pytest.raises(DataError, match="edges has lists for 1 examples; there are 2"):
        FactorGraphScores(U, A, [np.array(EDGES)])
    with pytest.raises(DataError, match=r"expected \(E, 2\) whole numbers"):
        FactorGraphScores(U, A, np.zeros((3, 3), int))
    with pytest.raises(DataError, match="Factor 0 joins variables"):
        FactorGraphScores(U, A, [(0, 9)])
    with pytest.raises(OptionError, match="There is no inference engine"):
        FactorGraphScores(U, A, EDGES, inference="tree")
