"""plot_convergence: what is on the axes."""

import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from maxmargin.errors import DataError, MaxMarginError, OptionError
from maxmargin.reporting.plots import plot_convergence, plot_eval_loss
from maxmargin.solvers.core.result import Result, Status

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def result(status=Status.CONVERGED, **options):
    history = {
        "n_passes": np.array([2, 5, 8, 11]),
        "seconds": np.array([0.1, 0.2, 0.3, 0.4]),
        "primal": np.array([2.0, 1.4, 1.5, 1.2]),
        "dual": np.array([-np.inf, 0.5, 0.4, 1.1]),
        "gap": np.array([np.inf, 0.9, 1.1, 0.1]),
        "n_oracle_calls": np.array([10, 20, 30, 44]),
    }
    return Result(status, np.zeros(3), 1.2, 1.1, 0.1, "relaxed", 11, 44, 0.4, history, "soft-bcfw", options)


def test_one_result():
    upper = plot_convergence(result(tol=0.2))
    lower = upper.figure.axes[1]
    assert upper.get_title() == "soft-bcfw: CONVERGED, relaxed gap 0.1"
    primal, dual = upper.get_lines()
    # The best bounds so far; no objective is negative.
    np.testing.assert_allclose(primal.get_ydata(), [2.0, 1.4, 1.4, 1.2])
    np.testing.assert_allclose(dual.get_ydata(), [0.0, 0.5, 0.5, 1.1])
    assert [text.get_text() for text in upper.get_legend().get_texts()] == [
        "primal (upper bound)",
        "dual (lower bound)",
    ]
    assert len(upper.collections) == 1
    assert lower.get_yscale() == "log"
    np.testing.assert_allclose(lower.get_lines()[0].get_ydata(), [0.9, 1.1, 0.1])
    np.testing.assert_allclose(lower.get_lines()[0].get_xdata(), [0.2, 0.3, 0.4])
    assert lower.get_lines()[1].get_ydata()[0] == 0.2
    assert lower.get_xlabel() == "seconds of training"
    assert lower.get_ylabel() == "certified gap"


def test_passes_on_the_axis():
    lower = plot_convergence(result(), x="n_passes").figure.axes[1]
    assert lower.get_xlabel() == "passes over the data"
    np.testing.assert_array_equal(lower.get_lines()[0].get_xdata(), [5, 8, 11])


def test_axes_of_the_users_own_get_the_gap():
    _, ax = plt.subplots()
    assert plot_convergence(result(Status.MAX_PASSES), ax=ax) is ax
    assert ax.get_yscale() == "log"
    assert ax.get_title() == "soft-bcfw: MAX_PASSES, relaxed gap 0.1"


def test_several_results():
    upper = plot_convergence({"one": result(), "two": result(Status.STALLED)})
    assert upper.get_title() == "one: CONVERGED, relaxed gap 0.1\ntwo: STALLED, relaxed gap 0.1"
    assert [line.get_label() for line in upper.figure.axes[1].get_lines()] == ["one", "two"]
    assert len(upper.get_lines()) == 4
    assert len({line.get_color() for line in upper.get_lines()}) == 2
    many = plot_convergence([result() for _ in range(6)])
    assert many.get_title() == "6 results"


@pytest.mark.parametrize("nothing", [[], {}, 3, [3], {"a": 3}])
def test_nothing_to_plot(nothing):
    with pytest.raises(DataError, match="expected a result"):
        plot_convergence(nothing)


def test_an_unknown_axis():
    with pytest.raises(OptionError, match='x=\'hours\' is not known; use "seconds", "n_passes" or "n_oracle_calls"'):
        plot_convergence(result(), x="hours")


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MaxMarginError, match=r"pip install 'maxmargin\[plot\]'"):
        plot_convergence(result())


def test_a_path_of_C():
    from types import SimpleNamespace

    from maxmargin.estimators.choosing import Candidate
    from maxmargin.reporting.plots import plot_path

    path = [Candidate(1.0, 0.5, 0.1, 3, 0.1), Candidate(3.16, 0.2, 0.1, 3, 0.1), Candidate(10.0, 0.3, 0.1, 3, 0.1)]
    ax = plot_path(SimpleNamespace(validation_path_=path, C_=3.16))
    loss, chosen = ax.get_lines()
    assert loss.get_ydata().tolist() == [0.5, 0.2, 0.3]
    assert chosen.get_label() == "chosen: C = 3.16"
    assert [one.get_text() for one in ax.get_xticklabels()] == ["1", "3.16", "10"]
    with pytest.raises(DataError, match="There is no path to plot"):
        plot_path(SimpleNamespace(validation_path_=[], C_=1.0))


def test_several_runs_have_one_entry_each_in_the_legend():
    upper = plot_convergence({"one": result(), "two": result()}, x="n_oracle_calls")
    lower = upper.figure.axes[1]
    assert [text.get_text() for text in upper.get_legend().get_texts()] == [
        "primal (upper bound)",
        "dual (lower bound)",
    ]
    assert [text.get_text() for text in lower.get_legend().get_texts()][:2] == ["one", "two"]
    assert (upper.get_yscale(), lower.get_yscale()) == ("log", "log")


def test_held_out_losses():
    one, other = result(), result()
    one.history["eval_loss"] = np.array([np.nan, 0.5, 0.2, 0.3])
    other.history["eval_loss"] = np.array([0.6, 0.5, 0.4, 0.3])
    ax = plot_eval_loss({"one": one, "other": other})
    line, ring, second, last = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [5, 8, 11])
    np.testing.assert_array_equal(line.get_ydata(), [0.5, 0.2, 0.3])
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (8, 0.2)
    assert (last.get_xdata()[0], last.get_ydata()[0]) == (11, 0.3)
    assert len(second.get_xdata()) == 4
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "other"]
    assert plot_eval_loss(one, ax, x="seconds") is ax
    with pytest.raises(DataError, match="give fit an eval_set"):
        plot_eval_loss(result())
    with pytest.raises(OptionError, match="x='time' is not known"):
        plot_eval_loss(one, x="time")
    bare = result()
    bare.history = {}
    with pytest.raises(DataError, match="The result has no history"):
        plot_convergence(bare)
