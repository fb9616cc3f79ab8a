"""FactorGraphs: shapes, score tables from the definition, subsets, and every sentence of its validation."""

import itertools

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
    np.testing.assert_array_equal(np.diff(graphs.example_states), [sum(p.n_states) for p in parts])
    np.testing.assert_array_equal(
        np.diff(graphs.example_tables), [sum(int(np.prod(s)) for s in p.shapes) for p in parts]
    )
    np.testing.assert_array_equal(
        np.diff(graphs.example_messages), [sum(sum(s) - len(s) for s in p.shapes) for p in parts]
    )
    assert graphs.arrays.weight.sum() == pytest.approx(7)


def test_local_arrays_are_those_of_each_structure():
    """Every column of the local arrays, counted again one member at a time."""
    for seed in range(6):
        graphs = random_problem(np.random.default_rng(seed), n_examples=9, max_states=2 + seed % 3)
        a = graphs.arrays
        incident, scope, v_groups, f_groups, buffers = [], [], [], [], []
        for s, structure in enumerate(graphs.structures):
            sizes = [graphs.variable_templates[t].n_states[0] for t in structure.variable_templates]
            shapes = [graphs.factor_templates[t].n_states for t in structure.factor_templates]
            state = np.concatenate([[0], np.cumsum(sizes)])
            v0, f0 = a.structures[s].variables, a.structures[s].factors
            assert a.structures[s].variable_groups == len(v_groups)
            assert a.structures[s].factor_groups == len(f_groups)
            table = message = full = 0
            of_variable = [[] for _ in sizes]
            for c, (t, shape, members) in enumerate(
                zip(structure.factor_templates, shapes, structure.scopes, strict=True)
            ):
                assert list(a.factors[f0 + c]) == [t, table, len(members), len(scope), message, full]
                template = graphs.factor_templates[t]
                pair = [-1] * 8
                if shape == (2, 2) and not template.scores.any() and not len(a.factor_scores):
                    pair = [*members, *state[list(members)], *template.blocks.ravel()]
                np.testing.assert_array_equal(a.pairs[f0 + c], pair)
                for j, v in enumerate(members):
                    outer, stride = int(np.prod(shape[:j])), int(np.prod(shape[j + 1 :]))
                    of_variable[v].append([table, full + sum(shape[:j]), outer, stride, c])
                scope += members
                table += int(np.prod(shape))
                message += sum(shape) - len(shape)
                full += sum(shape)
            for v, t in enumerate(structure.variable_templates):
                expected = [t, state[v], len(of_variable[v]), len(incident), 0, 0]
                assert list(a.variables[v0 + v]) == expected
                incident += of_variable[v]
            for rows, kinds, templates, out in (
                (structure.variable_rows, structure.variable_templates, graphs.variable_templates, v_groups),
                (structure.factor_rows, structure.factor_templates, graphs.factor_templates, f_groups),
            ):
                at = first = 0
                for row, run in itertools.groupby(rows):
                    last = first + len(list(run))
                    blocks = np.concatenate([templates[t].blocks.ravel() for t in kinds[first:last]])
                    blocks = blocks[blocks >= 0]
                    low, high = (blocks.min(), blocks.max() + 1) if len(blocks) else (0, 0)
                    out.append([first, last, row, low, high, at])
                    at, first = at + high - low, last
                buffers.append(at)
        np.testing.assert_array_equal(a.scope, scope)
        assert a.incident.tolist() == [tuple(row) for row in incident]
        assert a.variable_groups.tolist() == [tuple(row) for row in v_groups]
        assert a.factor_groups.tolist() == [tuple(row) for row in f_groups]
        assert a.largest.buffer == max(buffers)


def test_states_that_share_a_block_are_counted():
    graphs = build(variable_templates=[Template([-1, 0]), Template([3, 1, 3])])
    np.testing.assert_array_equal(graphs.arrays.variable_sharing, [0, 1, 2, 1, 2])


def test_scopes_as_an_array_are_scopes_as_tuples():
    pairs = [(0, 1), (2, 1), (3, 0)]
    given = [Structure([0] * 4, range(4), [0] * 3, range(3), one) for one in (pairs, np.array(pairs))]
    for one in given:
        np.testing.assert_array_equal(one.scope, [0, 1, 2, 1, 3, 0])
        np.testing.assert_array_equal(one.arity, [2, 2, 2])
        assert one.scope_lists() == [[0, 1], [2, 1], [3, 0]]
        assert one.is_forest()


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
    a, b = graphs, part
    whole, some = graphs.scores(flat, True), part.scores(flat, True)
    for of_whole, of_part, x, y in (
        (a.example_variables, b.example_variables, a.labels, b.labels),
        (a.example_states, b.example_states, a.arrays.losses, b.arrays.losses),
        (a.example_states, b.example_states, whole.variables, some.variables),
        (a.example_tables, b.example_tables, whole.factors, some.factors),
    ):
        for at, m in enumerate(chosen):
            np.testing.assert_array_equal(x[of_whole[m] : of_whole[m + 1]], y[of_part[at] : of_part[at + 1]])
    np.testing.assert_array_equal(b.arrays.weight, a.arrays.weight[chosen])
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
    with pytest.raises(DataError, match=rf"X\[1, 2\] is {shown}; features must be finite, not NaN or infinity\."):
        Features(form(x))


def test_features_must_be_a_matrix_of_numbers():
    with pytest.raises(DataError, match=r"X has 1 dimension\(s\), shape \(3,\); expected 2: \(rows, features\)\."):
        Features(np.ones(3))
    with pytest.raises(DataError, match=r"X has 3 dimension\(s\)"):
        Features(np.ones((1, 2, 3)))
    with pytest.raises(DataError, match=r"colours holds values that are not real numbers \(dtype <U4\)\."):
        Features(np.array([["red", "blue"]]), "colours")


def test_integers_and_booleans_become_floats():
    for values in (np.eye(2, dtype=int), np.eye(2, dtype=bool), [[1, 0], [0, 1]]):
        assert Features(values).arrays.dense.dtype == np.float64
    assert Features(sp.csr_array(np.eye(2, dtype=int))).arrays.data.dtype == np.float64


# -------------------------------------------------------------------------------- templates, structures


@pytest.mark.parametrize(
    ("blocks", "scores", "sentence"),
    [
        ([], None, r"at least one state a variable; its blocks have shape \(0,\)"),
        (3, None, r"at least one state a variable; its blocks have shape \(\)"),
        ([0.0, 0.5], None, "blocks must be whole numbers; found dtype float64"),
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
        (
            ([0, 0], [0, 0], [0, 0], [0, 0], np.array([[0, 1], [1, 2]])),
            r"Factor 1 joins variables \(1, 2\), but the example has variables 0 to 1",
        ),
        (
            ([0, 0], [0, 0], [0, 0], [0, 0], np.array([[0, 1], [0, 0]])),
            r"Factor 1 joins variables \(0, 0\): a variable may stand in a scope only once",
        ),
        (([0, 0], [0, 0], [0], [0], [(0.5, 1)]), "scopes must be a vector of whole numbers; found .*dtype float64"),
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
            {
                "structures": [
                    Structure([0, 1], [0, 1]),
                    Structure([0, 1], [0, 1], [0, 0, 0], [0, 0, 0], [(0, 1), (0,), (1, 0)]),
                ]
            },
            r"Factor 1 of structure 1 joins variables with \(2,\) states; its template expects \(2, 3\)",
        ),
        (
            {"variable_templates": [Template([[0, 1], [2, 3]]), Template([2, 3, 4])]},
            "Variable template 0 has 2 dimensions; a variable's has 1",
        ),
        ({"structure_of": [0, 1]}, "structure_of names structure 1 for example 1; there are 1"),
        ({"structure_of": [-1, 0]}, "structure_of names structure -1 for example 0; there are 1"),
        ({"structure_of": [0, 0.5]}, r"structure_of must be whole numbers; entry \[1\] is 0\.5"),
        ({"structure_of": [[0, 0]]}, r"structure_of has shape \(1, 2\); expected one structure per example"),
        ({"structures": [Structure([0, 1], [0, -1])]}, "Structure 0 names feature row -1; rows count from 0"),
        (
            {"structures": [Structure([0, 1], [0, 1], [0], [-2], [(0, 1)])]},
            "Structure 0 names feature row -2; rows count from 0",
        ),
        ({"variable_row": [0, -1]}, "Example 1 reads variable feature row -1, but X has 4 rows"),
        ({"factor_row": [-1, 0]}, "Example 0 reads factor feature row -1, but the constant feature has 1 rows"),
        ({"variable_row": [0]}, r"variable_row has shape \(1,\); expected \(2,\), one per example"),
        ({"labels": [0, 1, 1.5, 2]}, r"The labels must be whole numbers; entry \[2\] is 1\.5"),
        ({"variable_row": [0, 3]}, "Example 1 reads variable feature row 4, but X has 4 rows"),
        ({"factor_row": [1, 0]}, "Example 0 reads factor feature row 1, but the constant feature has 1 rows"),
        ({"labels": [0, 1, 1]}, "There are 3 labels for 4 variables"),
        ({"labels": [0, 1, 1, 3]}, "Example 1: variable 1 has label 3; its states are 0 to 2"),
        ({"labels": [0, -1, 1, 2]}, "Example 0: variable 1 has label -1; its states are 0 to 2"),
        ({"losses": np.zeros(3)}, r"losses has shape \(3,\); expected \(10,\)"),
        ({"losses": np.full(10, np.nan)}, r"losses must hold finite numbers\."),
        ({"losses": np.full(10, -np.inf)}, r"losses must hold finite numbers\."),
        ({"losses": np.zeros(3), "labels": None}, r"losses has shape \(3,\); expected \(10,\)"),
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.array, sp.csr_array])
def test_a_constant_column_is_added_as_if_it_had_been_given(form, dtype):
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(dtype)
    x[x < 0.2] = 0.0
    x[3] = 0.0
    made = Features(form(x)).with_constant()
    given = Features(form(np.hstack([x, np.ones((7, 1), dtype)])))
    assert made.shape == given.shape
    for one, other in zip(made.arrays, given.arrays, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_ranges_of_columns_count_the_zeros_that_are_not_held():
    x = np.array([[1.0, 0.0, -2.0, 3.0, 0.0], [2.0, 5.0, 0.0, 4.0, 0.0]])
    low, high = Features(sp.csr_array(x)).column_ranges()
    np.testing.assert_array_equal(low, x.min(axis=0))
    np.testing.assert_array_equal(high, x.max(axis=0))
