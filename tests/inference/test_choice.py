"""The choice of an engine: what is cheap and exact first, and a reason that a user can read."""

from __future__ import annotations

import numpy as np
import pytest

from maxmargin.inference import JunctionTree, choose, choose_marginals, choose_oracle
from maxmargin.problems import FactorGraphs, Features, Structure, Template, graph_problem, multi_label_problem


def labels(n, edges):
    return multi_label_problem(np.ones((2, 3)), None, np.array(edges, int).reshape(-1, 2), n)


def complete(n):
    return [(i, j) for i in range(n) for j in range(i)]


def grid(side, n_states):
    at = np.arange(side * side).reshape(side, side)
    edges = np.concatenate(
        [np.stack([at[:, :-1], at[:, 1:]], -1).reshape(-1, 2), np.stack([at[:-1], at[1:]], -1).reshape(-1, 2)]
    )
    return graph_problem([(np.ones((side * side, 1)), edges)], None, n_states)


@pytest.mark.parametrize(
    ("problem", "predicts", "oracle", "marginals", "reason"),
    [
        (labels(5, []), "trees", "trees", "trees", "no graph has a cycle"),
        (labels(30, [(i, i + 1) for i in range(29)]), "trees", "trees", "trees", "no graph has a cycle"),
        (labels(10, complete(10)), "exhaustive", "graph_cut", "exhaustive", "no example has more than 1024 labelings"),
        (labels(13, complete(13)), "junction_tree", "graph_cut", "junction_tree", "the induced width is small, 12"),
        (labels(30, complete(30)), "graph_cut", "graph_cut", "loopy_bp", "a relaxation that is often exact"),
        (grid(4, 3), "junction_tree", "junction_tree", "junction_tree", "the induced width is small"),
        (grid(12, 5), "dual_decomposition", "dual_decomposition", "loopy_bp", "a bound, and the best labeling found"),
    ],
)
def test_the_choice(problem, predicts, oracle, marginals, reason):
    engine, why = choose(problem)
    assert engine.name == predicts
    assert reason in why
    assert choose_oracle(problem)[0].name == oracle
    assert choose_marginals(problem)[0].name == marginals
    assert engine.refusal(problem) is None


def test_forbidden_joint_states_keep_cuts_away():
    pair = Template(np.full((2, 2), -1), [[0.0, 0.0], [0.0, -np.inf]])
    scopes = complete(24)
    structure = Structure(
        np.zeros(24, int), np.zeros(24, int), np.zeros(len(scopes), int), np.zeros(len(scopes), int), scopes
    )
    one = Features.constant()
    problem = FactorGraphs([structure], [0], [Template([-1, 0])], [pair], one, one, [0], [0])
    assert choose(problem)[0].name == "dual_decomposition"


def test_no_elimination_order_is_looked_for_in_large_pictures(monkeypatch):
    def refusal(self, graphs):
        raise AssertionError("an order was looked for")

    picture = grid(150, 4)
    cycle = labels(11_000, [(i, (i + 1) % 11_000) for i in range(11_000)])
    assert choose_marginals(cycle)[0].name == "junction_tree"
    monkeypatch.setattr(JunctionTree, "refusal", refusal)
    assert choose(picture)[0].name == choose_oracle(picture)[0].name == "dual_decomposition"
