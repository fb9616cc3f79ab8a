"""FactorGraphs: shapes, score tables from the definition, subsets, and every sentence of its validation."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import DataError
from maxmargin.problems import FactorGraphs, Features, Structure, Template
from maxmargin.problems.losses import variable_losses
from reference import enumeration
from reference.random_problems import random_problem

KINDS = [
    {"kind": "loopy"},
    {"kind": "forest"},
    {"kind": "loopy", "sparse": True},
    {"kind": "loopy", "forbidden": True, "max_arity": 4},
    {"kind": "loopy", "shared": False},
]
NAMES = [" ".join(f"{k}={v}" for k, v in kind.items()) for kind in KINDS]


def build(**changes):
    """Two examples of two variables (2 and 3 states) and one factor, with changes."""
    given = {
        "structures": [Structure([0, 1], [0, 1], [0], [0], [(0, 1)])],
        "structure_of": [0, 0],
        "variable_templates": [Template([0, 1]), Template([2, 3, 4])],
        "factor_templates": [Template(np.arange(6).reshape(2, 3))],
        "variable_features": Features(np.arange(12.0).reshape(4, 3)),
        "factor_features": Features.constant(),
        "variable_row": [0, 2],
        "factor_row": [0, 0],
        "labels": [0, 1, 1, 2],
        "losses": variable_losses(np.array([0, 1, 1, 2]), np.array([2, 3, 2, 3]), np.array([2, 2]), "hamming"),
    }
    return FactorGraphs(**(given | changes))


# -------------------------------------------------------------------------------- score tables


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("loss_augmented", [False, True])
def test_scores_follow_their_definition(kind, loss_augmented):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        graphs = random_problem(rng, **kind)
        flat = rng.normal(size=graphs.n_weights)
        found = graphs.scores(flat, loss_augmented)
        for one, other in zip(found, enumeration.score_tables(graphs, flat, loss_augmented), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_labeling_scores_are_weights_times_joint_features(kind):
    rng = np.random.default_rng(1)
    graphs = random_problem(rng, **kind)
    flat = rng.normal(size=graphs.n_weights)
    fixed = graphs.labeling_scores(graphs.scores(np.zeros(graphs.n_weights)), graphs.labels)
    found = graphs.labeling_scores(graphs.scores(flat), graphs.labels)
    assert np.isfinite(found).all()
    for m in range(graphs.n_examples):
        labels = graphs.labels[graphs.example_variables[m] : graphs.example_variables[m + 1]]
        assert found[m] == pytest.approx(fixed[m] + flat @ enumeration.joint_features(graphs, m, labels), abs=1e-12)


def test_float32_features_are_kept_and_score_like_float64():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 3)).astype(np.float32)
    narrow = build(variable_features=Features(values))
    wide = build(variable_features=Features(values.astype(np.float64)))
    assert narrow.variable_features.arrays.dense.dtype == np.float32
    flat = rng.normal(size=wide.n_weights)
    np.testing.assert_allclose(narrow.scores(flat).variables, wide.scores(flat).variables, rtol=1e-6)


# -------------------------------------------------------------------------------- shapes


def test_shapes_and_offsets():
    graphs = random_problem(np.random.default_rng(3), n_examples=7)
    parts = enumeration.examples(graphs)
    assert graphs.n_examples == 7
    np.testing.assert_array_equal(graphs.example_variables[:-1], [p.first_variable for p in parts])
    np.testing.assert_array_equal(np.diff(graphs.example_variables), [len(p.n_states) for p in parts])
    np.testing.assert_array_equal(np.diff(graphs.example_factors), [len(p.shapes) for p in parts])
    np.testing.assert_array_equal(graphs.state_starts(), [start for p in parts for start in p.state_start])
    np.testing.assert_array_equal(
        np.diff(graphs.arrays.tables), [sum(int(np.prod(s)) for s in p.shapes) for p in parts]
    )
    np.testing.assert_array_equal(np.diff(graphs.arrays.messages), [sum(sum(s) for s in p.shapes) for p in parts])
    assert graphs.arrays.weight.sum() == pytest.approx(7)


def test_incident_messages_lead_back_to_their_variable():
    graphs = random_problem(np.random.default_rng(4), n_examples=9)
    a = graphs.arrays
    for s, structure in enumerate(graphs.structures):
        for v in range(len(structure.variable_templates)):
            at = a.local_variables[s] + v
            incident = range(a.v_incident[at], a.v_incident[at] + a.v_degree[at])
            found = [(a.incident_factor[q], a.incident_message[q]) for q in incident]
            expected = []
            message = 0
            for c, scope in enumerate(structure.scopes):
                for u, n in zip(scope, graphs.factor_templates[structure.factor_templates[c]].n_states, strict=True):
                    if u == v:
                        expected.append((c, message))
                    message += n
            assert found == expected


def test_losses_of_labelings():
    graphs = build()
    np.testing.assert_array_equal(graphs.labeling_losses(graphs.labels), [0, 0])
    np.testing.assert_array_equal(graphs.labeling_losses(np.array([1, 1, 0, 0])), [0.5, 1.0])


def test_weights_have_two_views_and_a_way_back():
    graphs = build()
    flat = np.arange(float(graphs.n_weights))
    of_variables, of_factors = graphs.split_weights(flat)
    assert of_variables.shape == (5, 3)
    assert of_factors.shape == (6, 1)
    assert np.shares_memory(of_variables, flat)
    assert np.shares_memory(of_factors, flat)
    w_v, w_f = graphs.working_weights(flat)
    assert w_v.shape == (3, 5)
    assert w_v.flags.c_contiguous
    assert w_f.shape == (1, 6)
    np.testing.assert_array_equal(graphs.flat_weights(w_v, w_f), flat)
    for zero in graphs.working_weights():
        assert not zero.any()


def test_no_blocks_means_no_weights():
    graphs = build(
        variable_templates=[Template([-1, -1]), Template([-1] * 3)], factor_templates=[Template(np.full((2, 3), -1))]
    )
    assert graphs.n_weights == 0
    assert not graphs.scores(np.empty(0)).factors.any()


def test_is_forest():
    def scopes(*given):
        return Structure([0] * 4, [0] * 4, [0] * len(given), [0] * len(given), given)

    assert scopes().is_forest()
    assert scopes((0,), (0,), (1,)).is_forest()
    assert scopes((0, 1), (1, 2), (3, 1)).is_forest()
    assert scopes((0, 1, 2), (2, 3)).is_forest()
    assert not scopes((0, 1), (1, 0)).is_forest()
    assert not scopes((0, 1, 2), (2, 3), (3, 0)).is_forest()
    assert not scopes((0, 1), (1, 2), (2, 0)).is_forest()


# -------------------------------------------------------------------------------- subsets


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_take_keeps_everything_of_the_chosen(kind):
    rng = np.random.default_rng(5)
    graphs = random_problem(rng, n_examples=8, **kind)
    chosen = np.array([5, 0, 0, 7])
    part = graphs.take(chosen)
    flat = rng.normal(size=graphs.n_weights)
    a, b = graphs.arrays, part.arrays
    whole, some = graphs.scores(flat, True), part.scores(flat, True)
    for of_whole, of_part, x, y in (
        (a.variables, b.variables, a.labels, b.labels),
        (a.states, b.states, a.losses, b.losses),
        (a.states, b.states, whole.variables, some.variables),
        (a.tables, b.tables, whole.factors, some.factors),
    ):
        for at, m in enumerate(chosen):
            np.testing.assert_array_equal(x[of_whole[m] : of_whole[m + 1]], y[of_part[at] : of_part[at + 1]])
    np.testing.assert_array_equal(b.weight, a.weight[chosen])
    assert part.structures is graphs.structures
    assert part.variable_features is graphs.variable_features
    again = part.take([3, 1])
    np.testing.assert_array_equal(again.labels, graphs.take([7, 0]).labels)


def test_take_nothing():
    part = build().take([])
    assert part.n_examples == 0
    assert len(part.scores(np.zeros(part.n_weights)).variables) == 0


# -------------------------------------------------------------------------------- features


def test_csr_and_dense_features_score_alike():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(4, 3)) * (rng.random((4, 3)) < 0.5)
    dense, csr = build(variable_features=Features(x)), build(variable_features=Features(sp.csr_array(x)))
    assert csr.variable_features.sparse
    assert not dense.variable_features.sparse
    flat = rng.normal(size=dense.n_weights)
    np.testing.assert_allclose(csr.scores(flat).variables, dense.scores(flat).variables, atol=1e-14)
    np.testing.assert_allclose(csr.variable_features.arrays.squared_norms, (x**2).sum(axis=1))
    np.testing.assert_allclose(dense.variable_features.arrays.squared_norms, (x**2).sum(axis=1))
    np.testing.assert_array_equal(csr.variable_features.matrix().toarray(), x)
    assert csr.variable_features.nbytes > 0


def test_duplicate_entries_are_summed_without_touching_the_callers_matrix():
    given = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 0]), np.array([0, 3])), shape=(1, 3))
    np.testing.assert_array_equal(Features(given).matrix().toarray(), [[5.0, 0.0, 1.0]])
    np.testing.assert_array_equal(given.data, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(given.indices, [2, 0, 0])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_features_must_be_finite(form, value, shown):
    x = np.eye(3)
    x[1, 2] = value
    with pytest.raises(DataError, match=rf"X\[1, 2\] is {shown}; features must be finite numbers\."):
        Features(form(x))


def test_features_must_be_a_matrix_of_numbers():
    with pytest.raises(DataError, match=r"X has 1 dimension\(s\), shape \(3,\); expected 2: \(rows, features\)\."):
        Features(np.ones(3))
    with pytest.raises(DataError, match=r"X has 3 dimension\(s\)"):
        Features(np.ones((1, 2, 3)))
    with pytest.raises(DataError, match=r"colours holds values that are not numbers \(dtype <U4\)\."):
        Features(np.array([["red", "blue"]]), "colours")


def test_integers_and_booleans_become_floats():
    for values in (np.eye(2, dtype=int), np.eye(2, dtype=bool), [[1, 0], [0, 1]]):
        assert Features(values).arrays.dense.dtype == np.float64
    assert Features(sp.csr_array(np.eye(2, dtype=int))).arrays.data.dtype == np.float64


# -------------------------------------------------------------------------------- templates, structures


@pytest.mark.parametrize(
    ("blocks", "scores", "sentence"),
    [
        ([], None, r"at least one state for each variable; its blocks have shape \(0,\)"),
        ([0, -2], None, "names block -2; blocks are rows of the weight matrix, or -1"),
        ([0, 1], [0.0], r"fixed scores have shape \(1,\); its blocks have \(2,\)"),
        ([0, 1], [0.0, np.nan], "must be finite numbers, or -inf to forbid a state"),
        ([0, 1], [0.0, np.inf], "must be finite numbers, or -inf to forbid a state"),
        ([0, 1], [-np.inf, -np.inf], "forbids all of its states; at least one must be allowed"),
    ],
)
def test_template_sentences(blocks, scores, sentence):
    with pytest.raises(DataError, match=sentence):
        Template(blocks, scores)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (([0, 0], [0]), "2 variable templates and 1 variable rows; it needs one of each per variable"),
        (([0, 0], [0, 0], [0], [], [(0, 1)]), "1 factor templates, 0 factor rows and 1 scopes; it needs one of each"),
        (
            ([0, 0], [0, 0], [0], [0], [(0, 2)]),
            r"Factor 0 joins variables \(0, 2\), but the example has variables 0 to 1",
        ),
        (
            ([0, 0], [0, 0], [0], [0], [(0, -1)]),
            r"Factor 0 joins variables \(0, -1\), but the example has variables 0 to 1",
        ),
        (
            ([0, 0], [0, 0], [0], [0], [(1, 1)]),
            r"Factor 0 joins variables \(1, 1\): a variable may stand in a scope only once",
        ),
        (([0.5], [0]), "variable_templates must be a vector of whole numbers; found shape .*dtype float64"),
        (([[0]], [0]), r"variable_templates must be a vector of whole numbers; found shape \(1, 1\)"),
    ],
)
def test_structure_sentences(given, sentence):
    with pytest.raises(DataError, match=sentence):
        Structure(*given)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"structure_of": [], "variable_row": [], "factor_row": []}, "There are no examples: the data is empty"),
        ({"structures": [Structure([], [])]}, "Structure 0 has no variables"),
        ({"structures": [Structure([0, 2], [0, 1])]}, "Structure 0 names variable template 2; there are 2"),
        ({"factor_templates": []}, "Structure 0 names factor template 0; there are 0"),
        (
            {"structures": [Structure([1, 0], [0, 1], [0], [0], [(0, 1)])]},
            r"Factor 0 of structure 0 joins variables with \(3, 2\) states; its template expects \(2, 3\)",
        ),
        (
            {"structures": [Structure([0, 1], [0, 1], [0], [0], [()])]},
            r"Factor 0 of structure 0 joins variables with \(\) states; its template expects \(2, 3\)",
        ),
        (
            {"variable_templates": [Template([[0, 1], [2, 3]]), Template([2, 3, 4])]},
            "Variable template 0 has 2 dimensions; a variable's has 1",
        ),
        ({"variable_row": [0, 3]}, "Example 1 reads variable feature row 4, but X has 4 rows"),
        ({"factor_row": [1, 0]}, "Example 0 reads factor feature row 1, but the constant feature has 1 rows"),
        ({"labels": [0, 1, 1]}, "There are 3 labels for 4 variables"),
        ({"labels": [0, 1, 1, 3]}, "Example 1: variable 1 has label 3; its states are 0 to 2"),
        ({"labels": [0, -1, 1, 2]}, "Example 0: variable 1 has label -1; its states are 0 to 2"),
        ({"losses": np.zeros(3)}, "The loss tables have 3 entries; the variables have 10 states"),
        ({"losses": np.full(10, np.nan)}, "The task loss of some state is not a finite number"),
        ({"losses": np.ones(10)}, "Example 0: the loss of variable 0's own label is not 0"),
        ({"variable_scores": np.zeros(3)}, r"variable_scores has shape \(3,\); expected \(10,\)"),
        ({"factor_scores": np.full(12, np.inf)}, "factor_scores must hold finite numbers, or -inf to forbid a state"),
        ({"weights": [1.0]}, r"The sample weights have shape \(1,\); expected \(2,\), one per example"),
        ({"weights": [1.0, -1.0]}, "Sample weights must be finite, not negative, and not all zero"),
        ({"weights": [0.0, 0.0]}, "Sample weights must be finite, not negative, and not all zero"),
        ({"weights": [1.0, np.nan]}, "Sample weights must be finite, not negative, and not all zero"),
    ],
)
def test_batch_sentences(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        build(**changes)


def test_a_forbidden_truth_is_named_wherever_it_is_forbidden():
    by_state = [Template([0, 1], [0.0, -np.inf]), Template([2, 3, 4])]
    joint = np.zeros((2, 3))
    joint[1, 2] = -np.inf
    of_states, of_tables = np.zeros(10), np.zeros(12)
    of_states[6] = of_tables[6 + 5] = -np.inf  # example 1: state 1 of variable 0; joint state (1, 2)
    for changes in (
        {"variable_templates": by_state},
        {"factor_templates": [Template(np.arange(6).reshape(2, 3), joint)]},
        {"variable_scores": of_states},
        {"factor_scores": of_tables},
    ):
        with pytest.raises(DataError, match=r"Example 1: its own labels are forbidden by the hard constraints\."):
            build(**changes)
        assert not build(**changes, labels=None, losses=None).has_labels


def test_one_example_is_enough():
    graphs = build(
        structure_of=[0], variable_row=[2], factor_row=[0], labels=[1, 1], losses=np.array([0.5, 0, 0.5, 0, 0.5])
    )
    assert graphs.n_examples == 1
    np.testing.assert_array_equal(graphs.labels, [1, 1])


def test_sample_weights_are_scaled_to_mean_one():
    np.testing.assert_allclose(build(weights=[1.0, 3.0]).arrays.weight, [0.5, 1.5])
