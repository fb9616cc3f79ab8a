"""ParserSVM: the tree of a sentence, by a weighted context-free grammar taken from the training trees.

    score(x, y) = sum over the rules of y of coef_[rule]  (+ span features, see parsing/forests.py)

Prediction is exact, by charts (parsing/chart.py). A sentence that the grammar does not derive has no tree, which is None, and
the score -inf. Trees are `Tree` objects or their bracketed text; sentences are lists of words, or trees, of which only the words
are read.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from maxmargin.errors import DataError, ModelFileError, OptionError, did_you_mean
from maxmargin.estimators.base import StructuredEstimator
from maxmargin.estimators.frames import OneVectorOfWeights
from maxmargin.estimators.labels import is_empty
from maxmargin.estimators.names import COption, Objective, SolverOption
from maxmargin.estimators.parameters import check_parameters, is_whole
from maxmargin.estimators.restoring import result_of, size_of
from maxmargin.estimators.saving import save
from maxmargin.estimators.stopping import Watch
from maxmargin.estimators.training import train
from maxmargin.parsing.brackets import BracketScores, bracket_scores
from maxmargin.parsing.forests import LOSSES, SPAN_FEATURES, ParseForests
from maxmargin.parsing.grammar import Grammar, check_binarisation, induce, pcfg_weights
from maxmargin.parsing.trees import Tree
from maxmargin.solvers import make_solver
from maxmargin.solvers.core.result import Result

#: Parameters that are of parsing alone; the others mean what they mean everywhere.
_OWN = ("markov", "parent", "min_count", "rare", "span_features", "loss", "unparsable", "memory")
#: Why "auto" is what it is.
_REASON = "a chart takes longer than a step, and bcfw asks for the fewest charts"


class ParserSVM(OneVectorOfWeights, BaseEstimator):
    """Parser that learns the weights of the rules of a context-free grammar.

    Parameters
    ----------
    C : float, list of float or "auto"
        Strength of the loss in ``1/(2C) |w|^2 + mean loss``: ``C = n * c`` for scikit-learn's ``c``, and SVM-struct's own C. "auto"
        chooses it on held-out examples; of a list, the value whose held-out loss is least is taken.
    markov : int, optional
        How many labels to the left the rest of a node remembers when it is binarised. Default: all of them, so that the grammar
        has the rules of the training trees and no others.
    parent : bool
        Annotate symbols with the label above them.
    min_count : int
        Binary and unary rules seen fewer times are left out of the grammar.
    rare : int
        Words seen at most so often are unknown, and train the weights of the classes of unknown words. With 0 there are no such
        classes, and a sentence with a new word has no parse.
    span_features : tuple of "first", "last", "length", "split"
        Features of spans beside the rules.
    loss : "brackets" or "zero-one"
        Task loss: wrong and missed brackets over twice the true ones, which is 1 - F1 where there are as many; or 1 for every
        tree but the true one.
    unparsable : "stop" or "skip"
        What becomes of a training tree that the grammar does not derive, as may be with ``min_count`` above 1: an error that
        names it, or a warning, and it is left out.
    memory : int
        Bytes that a chart may take, in each thread; longer sentences are refused.
    solver : str or solver
        "auto" is "bcfw"; or any solver that needs a max-oracle, or marginals, and nothing else.
    tol : float
        Certified gap at which training stops, in units of the task loss.
    max_passes : int
        Most passes over the data.
    max_seconds : float, optional
        Most seconds of training.
    random_state : int, Generator, RandomState or None
        Seed of the solver; None is different every time.
    n_jobs : int, optional
        Threads for certificates and predictions; None is 1, and -1 is one a core. The answer does not depend on it.
    verbose : int
        0 is silent; 1 shows progress on the standard error.
    warm_start : bool
        Start from where the last fit ended, if the data has the same shape; C, tol and the limits may differ.
    checkpoint : path, optional
        File where the solver keeps its state, and from which it resumes if it is there.
    objective : "margin", "log" or "softmax-margin"
        The structured hinge; or, for the solvers that can, the logarithmic loss of a conditional random field, as it is or with the
        task loss of each labeling in the exponent.
    validation_fraction : float
        Share of the examples that is held out to choose C; with fewer than 2000 variables in all, each is held out once, in folds
        of this size.
    cv : int, optional
        Number of folds, at least 2, by which C is chosen, whatever the size of the data: every example is held out once. None is as
        `validation_fraction` says.

    Attributes
    ----------
    grammar_ : Grammar
        The rules; ``grammar_.rule_names()`` are their names.
    rule_counts_ : int array (n_rules,)
        How often each was seen.
    coef_ : array (d,)
        The weights, ``result_.weights``: those of the rules, then those of span features.
    word_class_ : int array
        The classes of tokens that span features know.
    n_left_out_ : int
        Training trees that the grammar does not derive.
    result_ : Result
        Status, certificate and history of training.
    C_, validation_path_ : float, list of (C, loss, gap, n_passes, seconds, standard_error)
        C as given or chosen, and the values that were tried, with the held-out task loss; `maxmargin.plot_path` draws them.
    inference_ : str
        How predictions are made, and why.

    Examples
    --------
    >>> from maxmargin.estimators.parser import ParserSVM
    >>> trees = ["(S (NP (DT the) (NN dog)) (VP (VBZ barks)))", "(S (NP (NN Kim)) (VP (VBZ sees) (NP (DT the) (NN cat))))"]
    >>> model = ParserSVM(C=100).fit(trees)
    >>> print(model.predict([["the", "cat", "sees", "Kim"]])[0])
    (S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (NN Kim))))
    """

    #: Name in model files and on the command line.
    task = "parser"
    result_: Result

    def __init__(
        self,
        C: COption = "auto",
        *,
        markov: int | None = None,
        parent: bool = False,
        min_count: int = 1,
        rare: int = 1,
        span_features: Sequence[str] = (),
        loss: str = "brackets",
        unparsable: str = "stop",
        memory: int = 1 << 31,
        solver: SolverOption = "auto",
        tol: float = 1e-3,
        max_passes: int = 1000,
        max_seconds: float | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        objective: Objective = "margin",
        validation_fraction: float = 0.2,
        cv: int | None = None,
    ) -> None:
        self.C = C
        self.markov = markov
        self.parent = parent
        self.min_count = min_count
        self.rare = rare
        self.span_features = span_features
        self.loss = loss
        self.unparsable = unparsable
        self.memory = memory
        self.solver = solver
        self.tol = tol
        self.max_passes = max_passes
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.objective = objective
        self.validation_fraction = validation_fraction
        self.cv = cv

    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: Any = None,
        eval_metric: Any = None,
        patience: int | None = None,
        callbacks: Any = None,
    ) -> Self:
        """Take the grammar from the trees, and learn its weights.

        Parameters
        ----------
        X : list of sentences
            Lists of words; without y, the trees.
        y : list of Tree or str, optional
            The trees of the sentences.
        sample_weight : array (n,), optional
        eval_set : (X, y), optional
            Held-out examples, of which 1 - F1 of brackets is computed at every check: ``result_.history["eval_loss"]``.
        eval_metric : callable, optional
            Takes true and predicted labels, and returns a number of which less is better, in the place of the task loss.
        patience : int, optional
            End training when so many checks in a row have not lowered the held-out loss, and take the weights of the least.
        callbacks : list of callables, optional
            Each is called with a `maxmargin.solvers.Report` at every check; training ends if one returns False.

        Returns
        -------
        self
        """
        check_parser_options(self)
        watch = Watch(self, (X, y), eval_set, eval_metric, patience, callbacks)
        trees = as_trees(X if y is None else y)
        sentences = None if y is None else as_sentences(X)
        # A word that is known trains its own weights alone, and nothing would be learned about unknown ones.
        grammar, counts = induce(
            trees, self.markov, bool(self.parent), int(self.min_count), int(self.rare) + 1, int(self.rare)
        )
        problem = self._training_problem(grammar, sentences, trees, sample_weight)

        def finish(model: Any) -> None:
            model.grammar_, model.rule_counts_ = grammar, counts
            model.word_class_ = problem.parser.features.word_class
            model.n_left_out_ = len(trees) - problem.n_examples
            model._name_weights()

        watch.begin(finish)
        self._train(problem, watch)
        finish(self)
        return self

    def predict(self, X: Sequence[Any]) -> list[Tree | None]:
        """The best tree of each sentence; None, and a warning, where the grammar derives none.

        Parameters
        ----------
        X : list of lists of str, or of trees
            Sentences; of trees, the words are taken.
        """
        trees = [found[0] if found else None for found, _ in self._parse(X)]
        missing = sum(tree is None for tree in trees)
        if missing:
            warnings.warn(no_parse(missing, len(trees)), UserWarning, stacklevel=2)
        return trees

    def predict_top_k(self, X: Sequence[Any], k: int) -> tuple[list[list[Tree]], list[NDArray[np.float64]]]:
        """The k best trees of each sentence, best first, or all where there are fewer, and their scores.

        Parameters
        ----------
        X : list of sentences
        k : int

        Returns
        -------
        trees : list of n lists of Tree
        scores : list of n arrays
        """
        found = self._parse(X, k)
        return [trees for trees, _ in found], [scores for _, scores in found]

    def predict_margin(self, X: Sequence[Any]) -> NDArray[np.float64]:
        """By how much the best tree of each sentence scores above the second best, (n,).

        It is inf where the grammar derives one tree only, and -inf where it derives none.

        Parameters
        ----------
        X : list of lists of str, or of trees
            Sentences; of trees, the words are taken.
        """
        ranked = [np.append(scores, -np.inf) for _, scores in self._parse(X, 2)]
        return np.array([scores[0] - scores[1] if len(scores) > 1 else -np.inf for scores in ranked])

    def decision_function(self, X: Sequence[Any]) -> NDArray[np.float64]:
        """Score of the predicted tree of each sentence (n,); -inf where there is none.

        Parameters
        ----------
        X : list of lists of str, or of trees
            Sentences; of trees, the words are taken.
        """
        return np.array([scores[0] if trees else -np.inf for trees, scores in self._parse(X)])

    def evaluate(self, X: Sequence[Any], y: Sequence[Any] | None = None) -> BracketScores:
        """Precision, recall and F1 of labelled brackets, exact match and tag accuracy, as EVALB counts them.

        Parameters
        ----------
        X : list of sentences
            Without y, the trees.
        y : list of Tree or str, optional
        """
        truth = as_trees(X if y is None else y)
        return bracket_scores(
            truth, [found[0] if found else None for found, _ in self._parse(truth if y is None else X)]
        )

    def score(self, X: Sequence[Any], y: Sequence[Any] | None = None) -> float:
        """F1 of labelled brackets.

        Parameters
        ----------
        X : list of sentences, or of trees
            Lists of words; trees are both the sentences and the truth.
        y : list of trees, optional
            The true trees of the sentences.
        """
        return self.evaluate(X, y).f1

    def baseline(self) -> ParserSVM:
        """The probabilistic grammar with the same rules: weights are log-probabilities by maximum likelihood, nothing is trained.

        Span features have the weight 0.
        """
        check_is_fitted(self)
        made: ParserSVM = clone(self)
        made.grammar_, made.rule_counts_, made.word_class_ = self.grammar_, self.rule_counts_, self.word_class_
        made.inference_ = self.inference_
        made.coef_ = np.zeros_like(self.coef_)
        made.coef_[: self.grammar_.n_rules] = pcfg_weights(self.grammar_, self.rule_counts_)
        return made

    def feature_names(self) -> list[str]:
        """The names of all weights: rules, then span features."""
        check_is_fitted(self)
        return self._forests([[]]).feature_names()

    def _weight_names(self) -> list[str]:
        return self.feature_names()

    def top_rules(self, n: int = 10) -> list[tuple[str, float]]:
        """The n largest weights by their absolute values, with their names.

        Parameters
        ----------
        n : int
            How many.
        """
        names = self.feature_names()
        order = np.argsort(-np.abs(self.coef_), kind="stable")[: max(0, n)]
        return [(names[k], float(self.coef_[k])) for k in order.tolist()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted parser to a model file, which `maxmargin.load` reads.

        Parameters
        ----------
        path : path-like
            The file to write or to replace; ``.mm`` is the usual ending.
        """
        save(self, path)

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Header and arrays of a model file, beside those of the training."""
        names, arrays = self.grammar_.to_arrays()
        arrays |= {"rule_counts": self.rule_counts_, "word_class": self.word_class_}
        return {"grammar": names, "n_left_out": int(self.n_left_out_)}, arrays

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Set the attributes that `fit` would, from a model file."""
        grammar = Grammar.from_arrays(header["grammar"], arrays)
        counts, classes, n = arrays["rule_counts"], arrays["word_class"], grammar.n_tokens + 1
        if counts.dtype != np.int64 or counts.shape != (grammar.n_rules,) or not (counts >= 0).all():
            raise ModelFileError(f"its counts of rules are not {grammar.n_rules} numbers of times.")
        if classes.dtype != np.int32 or classes.shape != (n,) or not ((classes >= 0) & (classes < n)).all():
            raise ModelFileError(f"its classes of tokens are not {n} whole numbers below {n}.")
        self.grammar_, self.rule_counts_, self.word_class_ = grammar, counts, classes
        self.n_left_out_ = size_of(header, "n_left_out", 0)
        expected = self._forests([[]]).n_weights
        if arrays["weights"].shape != (expected,):
            raise ModelFileError(f"its weights have shape {arrays['weights'].shape}; its grammar needs ({expected},).")
        self.result_ = result_of(header["certificate"], arrays)
        self._name_weights()

    def _check_parameters(self) -> None:
        """Refuse a parameter that cannot be, in a sentence that says what can."""
        check_parser_options(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        # Without y, X has the trees.
        tags.target_tags.required = False
        tags.no_validation = True
        return tags

    # ------------------------------------------------------------------------------------------------ training

    def _training_problem(
        self, grammar: Grammar, sentences: list[list[str]] | None, trees: list[Tree], sample_weight: ArrayLike | None
    ) -> ParseForests:
        try:
            return ParseForests(
                grammar,
                sentences,
                trees,
                self.loss,
                span_features=tuple(self.span_features),
                underivable="raise" if self.unparsable == "stop" else "skip",
                memory=int(self.memory),
                sample_weight=sample_weight,
            )
        except DataError as error:
            # The problem's name for the option is not the estimator's.
            raise DataError(str(error).replace("underivable=", "unparsable=")) from None

    def _train(self, problem: ParseForests, watch: Watch) -> None:
        solver = make_solver(self.solver, problem, self.objective)
        if isinstance(self.solver, str) and self.solver == "auto" and self.objective == "margin":
            solver.reason = _REASON
        kind = solver.name, self.objective
        going_on = self.warm_start and getattr(self, "_kind", None) == kind
        train(self, solver, problem, self.result_.state if going_on else None, watch=watch)
        self._kind = kind

    def _name_weights(self) -> None:
        self.coef_ = self.result_.weights
        self.inference_ = "cky (exact): a grammar, whose charts are exact"

    # ------------------------------------------------------------------------------------------------ prediction

    def _parse(self, X: Sequence[Any], k: int = 1) -> list[tuple[list[Tree], NDArray[np.float64]]]:
        """The k best trees of each sentence, and their scores; an empty list where there is none."""
        check_is_fitted(self)
        if is_empty(X):
            return []
        sentences = as_sentences(X)
        found = self._forests(sentences).parse(self.coef_, k, self.n_jobs)
        out = []
        for m, words in enumerate(sentences):
            cuts = found.start[m * k : (m + 1) * k + 1].tolist()
            pieces = [found.rows[a:b] for a, b in itertools.pairwise(cuts) if b > a]
            out.append(([self.grammar_.build(rows, words) for rows in pieces], found.values[m, : len(pieces)]))
        return out

    def _forests(self, sentences: Sequence[Any]) -> ParseForests:
        return ParseForests(
            self.grammar_,
            sentences,
            span_features=tuple(self.span_features),
            word_class=self.word_class_,
            memory=int(self.memory),
        )


def check_parser_options(estimator: ParserSVM) -> None:
    """Refuse a parameter that cannot be, in a sentence that says what can."""
    p = estimator.get_params(deep=False)
    check_parameters(StructuredEstimator(**{name: value for name, value in p.items() if name not in _OWN}))
    check_binarisation(p["markov"], p["parent"])
    for name, least in (("min_count", 1), ("rare", 0), ("memory", 1)):
        if not (is_whole(p[name]) and p[name] >= least):
            raise OptionError(f"{name}={p[name]!r} is not possible; it must be a whole number of at least {least}.")
    if not isinstance(p["loss"], str) or p["loss"] not in LOSSES:
        raise OptionError(
            f'loss={p["loss"]!r} is not known; use "brackets" or "zero-one".' + did_you_mean(p["loss"], LOSSES)
        )
    if p["unparsable"] not in ("stop", "skip"):
        raise OptionError(
            f'unparsable={p["unparsable"]!r} is not known; use "stop" or "skip".'
            + did_you_mean(p["unparsable"], ("stop", "skip"))
        )
    names = p["span_features"]
    if isinstance(names, str) or not isinstance(names, Sequence) or not set(names) <= set(SPAN_FEATURES):
        raise OptionError(f"span_features={names!r} is not possible; it must be a list of names in {SPAN_FEATURES}.")


def as_trees(given: Any) -> list[Tree]:
    """Trees as they are, or read from their bracketed text."""
    trees = []
    for m, one in enumerate(_items(given, "trees")):
        if isinstance(one, str):
            try:
                one = Tree.parse(one)
            except DataError as error:
                raise DataError(f"Tree {m}: {error}") from None
        if not isinstance(one, Tree):
            raise DataError(f"Tree {m} is a {type(one).__name__}; expected a Tree, or its bracketed text.")
        trees.append(one)
    return trees


def as_sentences(given: Any) -> list[list[str]]:
    """Sentences as lists of words; of trees, their words."""
    sentences = []
    for m, one in enumerate(_items(given, "sentences")):
        words = one.words() if isinstance(one, Tree) else one
        if isinstance(words, str) or not isinstance(words, Sequence | np.ndarray):
            raise DataError(f"Sentence {m} is a {type(words).__name__}; expected a list of words.")
        wrong = [word for word in words if not isinstance(word, str)]
        if wrong:
            raise DataError(f"Sentence {m} has {wrong[0]!r} where a word should be; expected strings.")
        sentences.append([str(word) for word in words])
    return sentences


def no_parse(missing: int, n: int) -> str:
    """How many sentences have no tree."""
    return f"{missing} of {n} sentences have no parse under the grammar."


def _items(given: Any, what: str) -> list[Any]:
    if isinstance(given, str | Tree) or not hasattr(given, "__len__"):
        raise DataError(f"A {type(given).__name__} was given where a list of {what} is expected.")
    if len(given) == 0:
        raise DataError(f"There are no {what}: the data is empty.")
    return list(given)
