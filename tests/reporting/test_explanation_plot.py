"""The picture of an explanation."""

import matplotlib as mpl
import numpy as np
import pytest

import maxmargin as mm
from maxmargin.errors import DataError, OptionError

mpl.use("Agg")


@pytest.fixture(scope="module")
def explanation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 20))
    return mm.BinarySVM(C=10.0, tol=1e-2).fit(X, X[:, 0] > 0).explain(X[0])


def test_bars_sum_to_the_difference(explanation):
    for n in (3, 100):
        ax = mm.plot_explanation(explanation, n=n)
        widths = [bar.get_width() for bar in ax.patches]
        assert len(widths) == min(n + 1, len(explanation.contributions))
        assert sum(widths) == pytest.approx(explanation.difference)
        assert len(ax.get_yticklabels()) == len(widths)
        mpl.pyplot.close(ax.figure)


def test_it_draws_where_it_is_told(explanation):
    ax = mpl.pyplot.figure().add_subplot()
    assert mm.plot_explanation(explanation, ax) is ax
    mpl.pyplot.close(ax.figure)


def test_what_cannot_be_drawn_is_refused(explanation):
    with pytest.raises(DataError, match="expected what model"):
        mm.plot_explanation("x")
    with pytest.raises(OptionError, match="n=0 is not possible"):
        mm.plot_explanation(explanation, n=0)
