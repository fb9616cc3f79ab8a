"""PythonProblem: a structured problem that a user writes in plain Python, as SVM-struct's users did in C.

Conventions
-----------
Inputs x and outputs y are whatever the user likes; a `Model` says what they mean:

    joint_features(x, y)     phi(x, y): a vector (d,), a sparse row (1, d), or a dict {name: value}
    loss(y, y_hat)           the task loss: finite, not negative, and 0 for y_hat = y
    most_violated(x, y, w)   an output of largest  loss(y, y_hat) + w . phi(x, y_hat)
    predict(x, w)            an output of largest  w . phi(x, y_hat)

With features in dicts, names (strings or whole numbers) are numbered in the order in which the truths of training show them, and
that is fixed afterwards: a name that is not among them is left out, as if its weight were 0. A model that wants weights for what
no truth shows lists all names itself (``feature_names``). The methods then see the weights as a mapping by name (`NamedWeights`),
and otherwise as a read-only vector (d,), float64.

What the methods return is checked, and a sentence names the example. An output that is worse than the truth breaks the promise
``exact = True``, on which certificates rest: a `DataError`. Code that raises is an `OracleError`, which solvers survive if they
can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, MaxMarginError
from maxmargin.parallel.threads import pause
from maxmargin.problems.factor_graphs import example_weights
from maxmargin.problems.layout import offsets
from maxmargin.sparse import check_compressed, checked_csr

#: Examples that are asked about to find out how large losses are.
_SOME = 100
#: How far below the truth rounding may leave an output, relative to the terms that were added.
_ROUNDING = 1e-9


class OracleError(MaxMarginError, RuntimeError):
    """A method that the user wrote raised an error, which is the cause of this one."""


class Model:
    """What a user writes; deriving from this class is not needed, an object with these methods will do.

    Where a model has ``most_violated_batch(xs, ys, w)`` and ``predict_batch(xs, w)``, which return a list with an output per
    example, these are used in place of the single ones. Slack rescaling asks ``most_violated_slack(x, y, w)`` in place of
    ``most_violated``, an output of largest loss(y, y_hat) (1 + w . phi(x, y_hat) - w . phi(x, y)).
    """

    #: Whether `most_violated` always finds the maximum. If not, a gap certifies nothing, and results say so.
    exact: bool = True
    #: All names, for features in dicts; None collects those of the training pairs.
    feature_names: Sequence[Any] | None = None

    def joint_features(self, x: Any, y: Any) -> Any:
        """Features of an input together with an output.

        Parameters
        ----------
        x : object
            An input.
        y : object
            An output.
        """
        raise NotImplementedError

    def loss(self, y: Any, y_hat: Any) -> float:
        """What it costs to predict y_hat where the truth is y.

        Parameters
        ----------
        y : object
            The true output.
        y_hat : object
            Another output.
        """
        raise NotImplementedError

    def most_violated(self, x: Any, y: Any, w: Any) -> Any:
        """An output of largest loss plus score.

        Parameters
        ----------
        x : object
            An input.
        y : object
            Its true output.
        w : array (d,), or mapping of names to weights
            The weights.
        """
        raise NotImplementedError

    def predict(self, x: Any, w: Any) -> Any:
        """An output of largest score.

        Parameters
        ----------
        x : object
            An input.
        w : array (d,), or mapping of names to weights
            The weights.
        """
        raise NotImplementedError


class NamedWeights(Mapping[Any, float]):
    """Weights by the names of their features; the weight of any other name is 0."""

    def __init__(self, number_of: Mapping[Any, int], w: NDArray[np.float64]) -> None:
        self.number_of, self.w = number_of, w

    def __getitem__(self, name: Any) -> float:
        number = self.number_of.get(name)
        return 0.0 if number is None else float(self.w[number])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.number_of)

    def __len__(self) -> int:
        return len(self.number_of)

    def __contains__(self, name: object) -> bool:
        return name in self.number_of


class PythonProblem:
    """Training pairs and the model that says what they mean.

    Parameters
    ----------
    X, Y : sequences of the same length
        Inputs and true outputs.
    model : Model, or an object with its methods
    sample_weight : array (M,), optional
        Weight of each example in the mean hinge; they are scaled to mean 1.

    Attributes
    ----------
    n_examples, n_weights : int
    weight : float array (M,)
    feature_names : list or None
        Names by number, for features in dicts.
    """

    has_labels = True

    #: What solvers may ask of it (solvers/core/capabilities.py).
    offers = ("max-oracle", "features", "kernel matrix")

    def __init__(self, X: Any, Y: Any, model: Any, sample_weight: ArrayLike | None = None) -> None:
        check_model(model)
        self.X, self.Y, self.model = list(X), list(Y), model
        if len(self.X) != len(self.Y):
            raise DataError(
                f"X has {len(self.X)} examples, but Y has {len(self.Y)}; expected an output for each input."
            )
        if not self.X:
            raise DataError("There are no examples: the data is empty.")
        self.n_examples = len(self.X)
        self.weight = example_weights(sample_weight, self.n_examples)
        self.exact = bool(getattr(model, "exact", True))
        given = [self._joint_features(m, self.Y[m]) for m in range(self.n_examples)]
        self.number_of = _numbers_of(given, getattr(model, "feature_names", None))
        self.n_weights = _n_weights(given[0]) if self.number_of is None else len(self.number_of)
        self.sparse = self.number_of is not None or sp.issparse(given[0])
        #: (M, d): features of the truths, dense or in CSR as the model gives them.
        self.truth = self._features(list(range(self.n_examples)), given, "its own output")
        for m in range(self.n_examples):
            if (own := self._loss(m, self.Y[m])) != 0.0:
                raise DataError(f"Example {m}: the loss of its own output is {own}; expected 0.")

    @property
    def feature_names(self) -> list[Any] | None:
        """Names by number, for features in dicts."""
        return None if self.number_of is None else list(self.number_of)

    def scale_of_loss_and_features(self) -> tuple[float, float]:
        """Mean loss of the most violated outputs at w = 0, of some examples, and mean squared norm of the truths' features."""
        some = np.flatnonzero(self.weight > 0.0)[:_SOME]
        ell = self.violated_planes(np.zeros(self.n_weights), some)[1]
        squares = self.truth.multiply(self.truth).sum(axis=1) if self.sparse else np.square(self.truth).sum(axis=1)
        return float(self.weight[some] @ ell) / float(self.weight[some].sum()), float(
            self.weight @ squares
        ) / self.n_examples

    def with_weights(self, weights: ArrayLike | None) -> PythonProblem:
        """The same problem with other weights of its examples, scaled to mean 1.

        Parameters
        ----------
        weights : array (n,)
            Weights of the examples.
        """
        made = copy(self)
        made.weight = example_weights(weights, self.n_examples)
        return made

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """What a checkpoint knows this problem by: features of the truths, names and weights; code cannot be compared."""
        names = np.frombuffer(repr(self.feature_names).encode(), np.uint8)
        truth = (self.truth.indptr, self.truth.indices, self.truth.data) if self.sparse else (self.truth,)
        return *truth, self.weight, names

    # ------------------------------------------------------------------------------------------------ oracles

    def check_slack_rescaling(self) -> None:
        """Refuse slack rescaling if the model has no oracle for it."""
        if not any(callable(getattr(self.model, f"most_violated_slack{end}", None)) for end in ("", "_batch")):
            raise DataError(
                f"Slack rescaling needs a method most_violated_slack(x, y, w) of the model, and {type(self.model).__name__} "
                "has none: it returns an output of largest loss * (1 + score - score of the truth)."
            )

    def violated_planes(
        self, w: NDArray[np.float64], examples: NDArray[np.int64], rescaling: str = "margin"
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.float64]]:
        """Planes of the most violated outputs: psi (n, d) in CSR, ell (n,), and their slopes ell - psi . w.

        With slack rescaling psi is multiplied by the loss, too.

        Parameters
        ----------
        w : array (d,)
            Weights.
        examples : int array
            Numbers of the examples.
        rescaling : "margin" or "slack"
            What is multiplied by the loss: the margin, or the slack.
        """
        chosen = [int(m) for m in examples]
        xs, ys = [self.X[m] for m in chosen], [self.Y[m] for m in chosen]
        method = "most_violated" if rescaling == "margin" else "most_violated_slack"
        found = self._outputs(method, chosen, (xs, ys), w)
        psi = self._psi(chosen, found)
        ell = np.array([self._loss(m, y) for m, y in zip(chosen, found, strict=True)], np.float64)
        if rescaling == "slack":
            psi.data *= np.repeat(ell, np.diff(psi.indptr))
        owner, terms = np.repeat(np.arange(len(chosen)), np.diff(psi.indptr)), psi.data * w[psi.indices]
        slope = np.asarray(ell - np.bincount(owner, terms, len(chosen)), np.float64)
        if self.exact:
            measure = "loss + score" if rescaling == "margin" else "loss * (1 + score - that of the truth)"
            least = -_ROUNDING * (1.0 + ell + np.bincount(owner, np.abs(terms), len(chosen)))
            for k in np.flatnonzero(slope < least):
                raise DataError(
                    f"Example {chosen[k]}: {method} returned an output whose {measure} is {-slope[k]:.3g} below that of "
                    "the true output; it must return the largest. If it cannot promise that, set exact = False."
                )
        return psi, ell, slope

    def predicted_planes(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
        """Planes of predictions, with the loss left out: psi (n, d) in CSR, and zeros.

        Parameters
        ----------
        w : array (d,)
            Weights.
        examples : int array
            Numbers of the examples.
        """
        chosen = [int(m) for m in examples]
        found = self._outputs("predict", chosen, ([self.X[m] for m in chosen],), w)
        return self._psi(chosen, found), np.zeros(len(chosen))

    def prediction_losses(self, w: NDArray[np.float64], examples: NDArray[np.int64]) -> NDArray[np.float64]:
        """Task loss of the predictions for some examples.

        Parameters
        ----------
        w : array (d,)
            Weights.
        examples : int array
            Numbers of the examples.
        """
        chosen = [int(m) for m in examples]
        found = self._outputs("predict", chosen, ([self.X[m] for m in chosen],), w)
        return np.array([self._loss(m, y) for m, y in zip(chosen, found, strict=True)])

    def _psi(self, chosen: list[int], found: list[Any]) -> Any:
        """Features of the truths minus those of the outputs found, in CSR without zeros."""
        given = [self._joint_features(m, y) for m, y in zip(chosen, found, strict=True)]
        rows, shape = self._features(chosen, given, "the output that was found"), (len(chosen), self.n_weights)
        # By hand: for one example, SciPy's operators take longer than most oracles.
        if not self.sparse:
            change = self.truth[chosen] - rows
            at = change != 0.0
            return sp.csr_array((change[at], at.nonzero()[1], offsets(at.sum(axis=1))), shape)
        both: tuple[list[Any], list[Any]] = ([np.empty(0, np.int64)], [np.empty(0)])
        sizes = []
        for k, m in enumerate(chosen):
            for matrix, row, sign in ((self.truth, m, 1.0), (rows, k, -1.0)):
                piece = slice(matrix.indptr[row], matrix.indptr[row + 1])
                both[0].append(matrix.indices[piece])
                both[1].append(sign * matrix.data[piece])
            sizes.append(len(both[0][-1]) + len(both[0][-2]))
        psi = sp.csr_array((np.concatenate(both[1]), np.concatenate(both[0]), offsets(sizes)), shape)
        psi.sum_duplicates()
        psi.eliminate_zeros()
        return psi

    def _loss(self, m: int, y: Any) -> float:
        value = self._ask("loss", m, self.Y[m], y)
        try:
            loss = float(value)
        except (TypeError, ValueError):
            raise DataError(f"Example {m}: the loss is {value!r}; expected a number.") from None
        if not (np.isfinite(loss) and loss >= 0.0):
            raise DataError(f"Example {m}: the loss is {loss}; expected a finite number that is not negative.")
        return loss

    # ------------------------------------------------------------------------------------------------ the user's code

    def _ask(self, method: str, m: int, *arguments: Any) -> Any:
        return ask(self.model, method, f"Example {m}", *arguments)

    def _joint_features(self, m: int, y: Any) -> Any:
        """Features of an output, as the model returned them; a copy, since it may return the same buffer every time."""
        found = self._ask("joint_features", m, self.X[m], y)
        if callable(getattr(found, "copy", None)):
            return found.copy()
        return copy(found) if hasattr(found, "__copy__") else found

    def _outputs(self, method: str, chosen: list[int], arguments: tuple[list[Any], ...], w: Any) -> list[Any]:
        names = [f"Example {m}" for m in chosen]
        return outputs(self.model, method, names, arguments, named(self.number_of, w))

    def _features(self, examples: list[int], given: list[Any], whose: str) -> Any:
        """Features that the model returned (n, d), checked: CSR, or an array if they are vectors."""
        if not self.sparse:
            rows = [_vector(m, one, whose, self.n_weights) for m, one in zip(examples, given, strict=True)]
            vectors = np.array(rows, np.float64).reshape(len(rows), self.n_weights)
            if not np.isfinite(vectors).all():
                k, number = (int(one) for one in np.argwhere(~np.isfinite(vectors))[0])
                _raise_not_finite(examples[k], number, whose, vectors[k, number])
            return vectors
        known = self.number_of
        entries: list[tuple[Any, NDArray[np.float64]]] = [
            _sparse_row(m, one, whose, self.n_weights) if known is None else _named_row(m, one, whose, known)
            for m, one in zip(examples, given, strict=True)
        ]
        starts = offsets([len(data) for _, data in entries])
        indices = np.concatenate([np.empty(0, np.int64), *(columns for columns, _ in entries)])
        data = np.concatenate([np.empty(0), *(data for _, data in entries)])
        if not np.isfinite(data).all():
            at = int(np.flatnonzero(~np.isfinite(data))[0])
            names, number = self.feature_names, int(indices[at])
            k = int(np.searchsorted(starts, at, side="right") - 1)
            _raise_not_finite(examples[k], number if names is None else repr(names[number]), whose, data[at])
        return sp.csr_array((data, indices, starts), (len(given), self.n_weights))


def check_model(model: Any) -> None:
    """Refuse a model that lacks a method."""
    for method in ("joint_features", "loss", "most_violated", "predict"):
        if isinstance(model, type) or not callable(getattr(model, method, None)):
            what = f"the class {model.__name__} itself" if isinstance(model, type) else f"a {type(model).__name__}"
            raise DataError(
                f"The model is {what}; expected an object with the methods joint_features, loss, most_violated and predict"
                + ("." if isinstance(model, type) else f", and it has no {method}.")
            )


def named(number_of: Mapping[Any, int] | None, w: NDArray[np.float64]) -> Any:
    """Weights as the model's methods see them; they cannot write to them."""
    view = w.view()
    view.flags.writeable = False
    return view if number_of is None else NamedWeights(number_of, view)


def ask(model: Any, method: str, place: str, *arguments: Any) -> Any:
    """Call one of the user's methods; an error of theirs becomes an `OracleError` that says where."""
    function: Callable[..., Any] = getattr(model, method)
    try:
        return function(*arguments)
    except Exception as error:
        raise OracleError(f"{place}: {method} raised {type(error).__name__}: {error}") from error


def outputs(model: Any, method: str, names: list[str], arguments: tuple[list[Any], ...], w: Any) -> list[Any]:
    """An output for each example, by the batch method if there is one."""
    batch = f"{method}_batch"
    if not callable(getattr(model, batch, None)):
        answers = []
        for name, *one in zip(names, *arguments, strict=True):
            pause()
            answers.append(ask(model, method, name, *one, w))
        return answers
    place = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    found = list(ask(model, batch, place, *arguments, w)) if names else []
    if len(found) != len(names):
        raise DataError(f"{place}: {batch} returned {len(found)} outputs; expected {len(names)}.")
    return found


def _numbers_of(given: list[Any], listed: Sequence[Any] | None) -> dict[Any, int] | None:
    """The number of each name, or None if features are not in dicts."""
    if not isinstance(given[0], Mapping):
        if listed is not None:
            raise DataError("The model lists feature_names, but its features are not dicts.")
        return None
    number_of: dict[Any, int] = {}
    if listed is not None:
        for name in listed:
            number_of.setdefault(name, len(number_of))
        return number_of
    for features in given:
        if isinstance(features, Mapping):
            for name in features:
                number_of.setdefault(name, len(number_of))
    return number_of


def _n_weights(features: Any) -> int:
    shape = getattr(features, "shape", None)
    return int(shape[-1]) if shape else int(np.size(features))


def _vector(m: int, features: Any, whose: str, expected: int) -> NDArray[np.float64]:
    """One vector (d,)."""
    try:
        vector = np.asarray(features, np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"Example {m}: the features of {whose} are a {type(features).__name__}; expected a vector of numbers."
        ) from None
    if vector.shape not in ((expected,), (1, expected)):
        raise DataError(f"Example {m}: the features of {whose} have shape {vector.shape}; expected ({expected},).")
    return vector.ravel()


def _sparse_row(m: int, features: Any, whose: str, expected: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Columns and values of one sparse row (1, d)."""
    if not sp.issparse(features):
        raise DataError(
            f"Example {m}: the features of {whose} are a {type(features).__name__}; expected a sparse row, as of example 0."
        )
    row: Any = features
    if row.shape not in ((expected,), (1, expected)):
        raise DataError(f"Example {m}: the features of {whose} have shape {row.shape}; expected (1, {expected}).")
    if len(row.shape) == 1:
        row = row.reshape((1, expected))
    name = f"Example {m}: the sparse row of {whose}"
    if row.format != "csr":
        row = checked_csr(row, name)
    else:
        check_compressed(row.indptr, row.indices, row.data, row.shape, name)
    nnz = int(row.indptr[-1])
    return row.indices[:nnz], np.asarray(row.data[:nnz], np.float64)


def _named_row(
    m: int, features: Any, whose: str, number_of: dict[Any, int]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Numbers and values of the features of one dict, those of unknown names left out."""
    if not isinstance(features, Mapping):
        raise DataError(
            f"Example {m}: the features of {whose} are a {type(features).__name__}; expected a dict, as of example 0."
        )
    numbers, values = [], []
    for name, value in features.items():
        if not isinstance(name, str | int | np.integer):
            raise DataError(f"Example {m}: the feature name {name!r} is neither a string nor a whole number.")
        if (number := number_of.get(name)) is not None:
            try:
                values.append(float(value))
            except (TypeError, ValueError):
                raise DataError(f"Example {m}: the feature {name!r} is {value!r}; expected a number.") from None
            numbers.append(number)
    return np.array(numbers, np.int64), np.array(values, np.float64)


def _raise_not_finite(m: int, feature: Any, whose: str, value: float) -> NoReturn:
    raise DataError(f"Example {m}: feature {feature} of {whose} is {value}; features must be finite.")
