"""The synthetic sets follow the paper's description, exactly where it is exact and in proportion elsewhere."""

import numpy as np
import pytest

from maxmargin.datasets import make_synth1, make_synth2
from maxmargin.errors import OptionError


def test_synth1_shapes():
    X, Y = make_synth1()
    assert X.format == "csr"
    assert X.shape == (471, 6000)
    assert X.dtype == np.float64
    assert X.indices.dtype == np.int32
    assert X.has_canonical_format
    assert Y.shape == (471, 6)
    assert Y.dtype == np.int8


def test_synth1_labels_form_a_chain():
    _, Y = make_synth1(20_000, 1)
    assert (Y[:, 0] == 1).all()
    assert (Y[:, 1:] <= Y[:, :-1]).all()
    for i in range(1, 6):
        on_before = Y[:, i - 1] == 1
        assert abs(Y[on_before, i].mean() - 0.5) < 4 * 0.5 / np.sqrt(on_before.sum())


def test_synth1_features():
    X, Y = make_synth1(2_000, 2)
    assert (X.data == 1).all()
    of_label = X.toarray().reshape(2_000, 6, 1000)
    np.testing.assert_array_equal(of_label.sum(axis=2), 10 * Y)  # ten different ones
    frequency = of_label[:, 0].mean(axis=0)
    # Every feature is as likely as any other, the last ten of Floyd's sampling included.
    assert abs(frequency[990:].mean() - 0.01) < 4 * np.sqrt(0.01 / (2_000 * 10))
    assert frequency.max() < 0.01 + 6 * np.sqrt(0.01 / 2_000)


def test_synth2():
    X, Y = make_synth2(5_000, 3)
    assert X.shape == (5_000, 40)
    assert X.dtype == np.float64
    assert Y.shape == (5_000, 10)
    assert Y.dtype == np.int8
    assert set(np.unique(X)) == {0.0, 1.0}
    np.testing.assert_array_equal(Y.sum(axis=1), 1)
    np.testing.assert_array_equal(X.sum(axis=1), 4 * (Y.argmax(axis=1) + 1))
    assert abs(Y.mean(axis=0) - 0.1).max() < 4 * np.sqrt(0.09 / 5_000)
    assert abs(X.mean(axis=0) - 0.55).max() < 4 * 0.5 / np.sqrt(5_000)
    assert make_synth2()[0].shape == (1000, 40)


@pytest.mark.parametrize("make", [make_synth1, make_synth2])
def test_seeds(make):
    def dense(state):
        X, Y = make(50, state)
        return np.hstack([X if isinstance(X, np.ndarray) else X.toarray(), Y])

    np.testing.assert_array_equal(dense(5), dense(5))
    np.testing.assert_array_equal(dense(5), dense(np.random.default_rng(5)))
    assert (dense(5) != dense(6)).any()
    assert (dense(None) != dense(None)).any()


@pytest.mark.parametrize("make", [make_synth1, make_synth2])
def test_bad_options(make):
    with pytest.raises(OptionError, match="n_samples is 0; expected at least 1"):
        make(0)
    with pytest.raises(OptionError, match="random_state is -1"):
        make(10, -1)
