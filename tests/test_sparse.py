"""Sparse matrices whose arrays are wrong: a sentence at every entry, and never a read outside of them."""

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.errors import DataError
from maxmargin.formats import ClassData, write_svmlight_classes
from maxmargin.problems import Features, chain_problem, graph_problem, multi_class_problem
from maxmargin.sparse import checked_csr


def good(rows=12, columns=5, seed=0):
    return sp.random_array((rows, columns), density=0.6, format="csr", rng=np.random.default_rng(seed))


def one_based(X):
    wrong = X.copy()
    wrong.indices = wrong.indices + 1
    return wrong


def far_index(X):
    wrong = X.copy()
    wrong.indices[3] = 10**8
    return wrong


def negative_index(X):
    wrong = X.copy()
    wrong.indices[3] = -(10**7)
    return wrong


def falling_indptr(X):
    wrong = X.copy()
    wrong.indptr[4] = 10**8
    return wrong


def long_indptr(X):
    wrong = X.copy()
    wrong.indptr[-1] = 10**8
    return wrong


def late_indptr(X):
    wrong = X.copy()
    wrong.indptr[0] = 2
    return wrong


def short_indptr(X):
    wrong = X.copy()
    wrong.indptr = wrong.indptr[:-1]
    return wrong


def column_of_wrong_rows(X):
    wrong = X.tocsc()
    wrong.indices[0] = 10**8
    return wrong


def wrong_coordinates(X):
    wrong = X.tocoo()
    wrong.coords[0][0] = 10**8
    return wrong


def wrong_blocks(X):
    wrong = sp.bsr_array(X.toarray(), blocksize=(2, 1))
    wrong.indices[0] = 10**8
    return wrong


WRONG = [
    one_based, far_index, negative_index, falling_indptr, long_indptr, late_indptr, short_indptr, column_of_wrong_rows,
    wrong_coordinates, wrong_blocks,
]  # fmt: skip
Y = np.arange(12) % 3


class SparseRows:
    """A problem in Python whose features are the matrix it is given."""

    def __init__(self, row):
        self.row = row

    def joint_features(self, x, y):
        return self.row

    def loss(self, truth, y):
        return float(truth != y)

    def most_violated(self, x, y, w):
        return y

    def predict(self, x, w):
        return 0


def fitted(model, X):
    return model(max_passes=2).fit(X, Y)


ENTRIES = {
    "features": lambda X: Features(X),
    "multi-class builder": lambda X: multi_class_problem(X, Y, 3),
    "chain builder": lambda X: chain_problem([good(4), X], [[0] * 4, Y.tolist()], 3),
    "graph builder": lambda X: graph_problem([(X, np.array([[0, 1]]))], [Y], 3),
    "fit": lambda X: mm.MultiClassSVM(max_passes=2).fit(X, Y),
    "fit binary": lambda X: mm.BinarySVM(max_passes=2).fit(X, Y > 0),
    "fit rbf": lambda X: mm.MultiClassSVM(kernel="rbf", max_passes=2).fit(X, Y),
    "fit basis": lambda X: mm.MultiClassSVM(kernel="rbf", n_basis=3, max_passes=2).fit(X, Y),
    "fit chain": lambda X: mm.ChainSVM(max_passes=2).fit([X], [Y]),
    "fit graph": lambda X: mm.GraphSVM(max_passes=2).fit([(X, np.array([[0, 1]]))], [Y]),
    "fit part of a graph": lambda X: mm.GraphSVM(max_passes=2).fit([(X, [[0, 1]])], [[*Y[:-1].tolist(), None]]),
    "fit multi-label": lambda X: mm.MultiLabelSVM(max_passes=2).fit(X, np.eye(3, dtype=int)[Y]),
    "labels": lambda X: mm.MultiLabelSVM(max_passes=2).fit(good(), X),
    "predict": lambda X: mm.MultiClassSVM(max_passes=2).fit(good(), Y).predict(X),
    "score": lambda X: mm.MultiClassSVM(max_passes=2).fit(good(), Y).score(X, Y),
    "predict rbf": lambda X: mm.MultiClassSVM(kernel="rbf", max_passes=2).fit(good(), Y).predict(X),
    "predict chain": lambda X: mm.ChainSVM(max_passes=2).fit([good()], [Y]).predict([X]),
    "kernel's value": lambda X: mm.MultiClassSVM(kernel=lambda a, b: X, max_passes=2).fit(np.eye(12, 5), Y),
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda f: f.__name__)
def test_every_kind_of_wrong_array_is_named(spoil):
    with pytest.raises(DataError, match=r"the data"):
        checked_csr(spoil(good()), "the data")


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_checks(entry):
    """Segmentation faults, or silent training on other memory, without the check."""
    for spoil in (one_based, far_index, falling_indptr, column_of_wrong_rows):
        with pytest.raises(DataError, match=r"indptr|column|row"):
            ENTRIES[entry](spoil(good()))


def test_the_sentence_names_the_row_and_the_index():
    X = sp.csr_array(np.eye(4))
    X.indices[2] = 4
    with pytest.raises(DataError, match=r"X: row 2 has an entry in column 4, but there are the columns 0 to 3 only\."):
        Features(X)


def test_rows_of_python_problems_are_checked():
    row = sp.csr_array(np.ones((1, 4)))
    row.indices[1] = 10**8
    with pytest.raises(
        DataError, match="Example 0: the sparse row of its own output: row 0 has an entry in column 100000000"
    ):
        mm.StructuredSVM(SparseRows(row)).fit([0], [0])


def test_one_dimension_is_refused():
    one = sp.coo_array(np.ones(4))
    for use in (Features, lambda X: mm.BinarySVM().fit(X, Y), lambda X: mm.ChainSVM().fit([X], [Y])):
        with pytest.raises(DataError, match="1 dimension"):
            use(one)


def test_written_rows_are_checked(tmp_path):
    with pytest.raises(DataError, match="column"):
        write_svmlight_classes(tmp_path / "x.svm", ClassData(far_index(good()), Y, []))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_all_formats_read_the_same(kind):
    X = good()
    assert (checked_csr(X.asformat(kind), "X").toarray() == X.toarray()).all()


def test_unsorted_and_repeated_indices_are_put_in_order_in_a_copy():
    data, indices, indptr = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])
    X = sp.csr_array((data, indices, indptr), shape=(2, 3))
    found = Features(X).matrix()
    assert found.toarray().tolist() == [[2, 0, 4], [0, 4, 0]]
    assert found.indices.tolist() == [0, 2, 1]
    assert X.indices.tolist() == [2, 0, 2, 1]
    # That SciPy once found a matrix in order says nothing about what was written into it since.
    Z = sp.csr_array(np.array([[1.0, 2.0]]))
    assert Z.has_canonical_format
    Z.indices[:] = [1, 0]
    assert Features(Z).matrix().indices.tolist() == [0, 1]
    Z.indices[:] = [1, 1]
    assert Features(Z).matrix().toarray().tolist() == [[0, 3]]


def test_room_after_the_last_entry_is_not_read():
    X = sp.csr_array((np.array([1.0, np.nan]), np.array([0, 10**8]), np.array([0, 1])), shape=(1, 2))
    assert Features(X).matrix().toarray().tolist() == [[1, 0]]


def test_wide_matrices_take_no_room_for_their_columns():
    X = sp.csr_array((np.ones(1), np.array([5]), np.array([0, 1])), shape=(1, 2**31 - 1))
    assert Features(X).arrays.squared_norms.tolist() == [1.0]
    with pytest.raises(DataError, match=r"expected fewer than 2\*\*31"):
        Features(sp.csr_array((1, 2**31)))
