"""ParseForests: sentences to be parsed with a weighted context-free grammar, and their trees.

Conventions
-----------
An output y is a derivation (grammar.py), which is as good as a tree, since every tree has exactly one. Joint features count
the rules of the derivation, ``w[:n_rules]``; then come the span features that were asked for, in this order, each a table
(symbol, property) in C order. They count for spans of two words and more, at the symbol of their binary rule:

    "first", "last"   the class of the first, of the last word: 0 for rare tokens, and one class for every other token
    "length"          the bucket of the number of words
    "split"           the bucket of the number of words of the right part

Task losses, times ``scale``:

    "brackets"   (|P| + |G| - 2 |P and G|) / (2 |G|),  P, G the multisets of labelled brackets (begin, end, label) of y and of
                 the truth, without tags and hidden symbols; every label of a chain counts. Where as many brackets are
                 predicted as are true, it is 1 - F1. It may exceed 1, since a tree may have more brackets than the truth.
    "zero-one"   1 for every tree but the truth (Joachims, Finley and Yu 2009, section 5: 100 [y != y'], scale = 100)

The first is a sum over spans and goes into the chart; the second needs the two best derivations, of which one is not the
truth. Sentences without a derivation are no error when they are parsed: they have no tree and the score -inf.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.jit import records
from maxmargin.parallel.threads import n_threads
from maxmargin.parsing.chart import BRACKET, Brackets, SpanFeatures
from maxmargin.parsing.grammar import ROW, Grammar
from maxmargin.parsing.oracle import ParseExpectations, ParseOracle, gather, other_than_truth
from maxmargin.parsing.parser import Derivations, Parser
from maxmargin.parsing.slack_oracle import SlackParseOracle
from maxmargin.parsing.trees import Tree
from maxmargin.problems.factor_graphs import example_weights
from maxmargin.problems.layout import offsets

#: Names of the span features, and the least length of each bucket.
SPAN_FEATURES = ("first", "last", "length", "split")
BUCKETS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30)
LOSSES = ("brackets", "zero-one")


class ParseForests:
    """Sentences, a grammar, and the trees to learn from.

    Parameters
    ----------
    grammar : Grammar
    sentences : list of lists of words, or of arrays of tokens
        None takes the words of the trees.
    trees : list of Tree, optional
        The truths; None for sentences to parse.
    loss : "brackets" or "zero-one"
    scale : float
        The task loss is multiplied by this.
    span_features : tuple of names
    min_count : int
        Tokens seen fewer times in these sentences are rare.
    word_class : int array (n_tokens + 1,), optional
        The classes of tokens instead, those of another problem.
    underivable : "raise" or "skip"
        What happens with a tree that the grammar does not derive: an error that names it, or a warning, and it is left out.
    beam, coarse, memory
        As in `Parser`; with pruning, certificates are "none".
    sample_weight : array (M,), optional
        Weight of each example in the mean hinge; they are scaled to mean 1.

    Attributes
    ----------
    n_examples, n_weights : int
    weight : float array (M,)
    kept : int array (M,)
        Which of the sentences that were given these are.
    sentences : Brackets
    truth_start, truth : int array, records
        Derivations of the trees: rows ``truth_start[m]:truth_start[m + 1]``.
    """

    #: Whether its max-oracle takes ``rescaling``.
    rescales_slack = True
    #: What solvers may ask of it (solvers/core/capabilities.py).
    offers = ("max-oracle", "marginals", "features", "kernel matrix")

    def __init__(
        self,
        grammar: Grammar,
        sentences: Sequence[Any] | None,
        trees: Sequence[Tree] | None = None,
        loss: str = "brackets",
        scale: float = 1.0,
        span_features: Sequence[str] = (),
        min_count: int = 5,
        word_class: ArrayLike | None = None,
        underivable: str = "raise",
        beam: float | None = None,
        coarse: float | None = None,
        memory: int = 1 << 31,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        self.grammar, self.loss, self.scale, self.span_features = grammar, loss, float(scale), tuple(span_features)
        self._check_options(underivable)
        self.has_labels = trees is not None
        given = _words(sentences, trees)
        tokens = [_tokens(grammar, m, one) for m, one in enumerate(given)]
        derived = _derive(grammar, tokens, trees, underivable) if trees is not None else [_NO_ROWS] * len(given)
        self.kept = np.array([m for m, rows in enumerate(derived) if rows is not None], np.int64)
        if len(self.kept) == 0:
            raise DataError("There are no examples: the data is empty, or the grammar derives none of the trees.")
        self.words = [given[m] if len(given[m]) and isinstance(given[m][0], str) else None for m in self.kept]
        tokens, truths = [tokens[m] for m in self.kept], [derived[m] for m in self.kept]
        self.n_examples = len(tokens)
        weight = None if sample_weight is None else example_weights(sample_weight, len(given))[self.kept]
        self.weight = example_weights(weight, self.n_examples)

        self.truth_start = offsets([len(rows) for rows in truths])
        self.truth: Any = np.concatenate([_NO_ROWS, *truths]).view(np.recarray)
        start, token = offsets([len(one) for one in tokens]), np.concatenate([_NO_TOKENS, *tokens])
        features, self.n_weights = self._make_features(start, token, min_count, word_class)
        self.parser = Parser(grammar, features, beam, coarse, memory)
        self.parser.check_length(start)
        self.sentences = Brackets(start, token, *self._gold_brackets())
        #: (M,): what a wrong bracket costs.
        self.units = self.scale / (2.0 * np.maximum(1, np.diff(self.sentences.gold_start)))

    def on(self, sentences: Sequence[Any] | None, trees: Sequence[Tree] | None = None) -> ParseForests:
        """Other sentences, with the same features and options."""
        p = self.parser
        beam, coarse = p.pruning.beam, p.pruning.coarse
        return ParseForests(
            self.grammar,
            sentences,
            trees,
            self.loss,
            self.scale,
            self.span_features,
            word_class=p.features.word_class,
            beam=None if beam == np.inf else beam,
            coarse=coarse or None,
            memory=p.memory,
        )

    # ------------------------------------------------------------------------------------------------ answers

    def parse(self, w: ArrayLike, k: int = 1, n_jobs: int | None = None) -> Derivations:
        """The k best derivations of every sentence, with their scores and wrong brackets."""
        return self.parser.best(self.sentences, self._weights(w), k, threads=n_threads(n_jobs))

    def predict(self, w: ArrayLike, n_jobs: int | None = None) -> list[Tree | None]:
        """The best tree of every sentence; None where there is none."""
        return [found[0] if found else None for found in self.k_best(w, 1, n_jobs)]

    def k_best(self, w: ArrayLike, k: int, n_jobs: int | None = None) -> list[list[Tree]]:
        """The k best trees of every sentence, best first, or all of them where there are fewer."""
        found = self.parse(w, k, n_jobs)
        out: list[list[Tree]] = []
        for m in range(self.n_examples):
            cuts = found.start[m * k : (m + 1) * k + 1].tolist()
            pieces = [found.rows[a:b] for a, b in itertools.pairwise(cuts) if b > a]
            out.append([self.grammar.build(rows, self.words[m]) for rows in pieces])
        return out

    def marginals(self, w: ArrayLike, temperature: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expected features (d,), summed over all sentences, under p(y) ~ exp(w . phi(y) / T); log partitions (M,).

        A log partition is T log sum exp(w . phi / T), -inf for a sentence without a derivation.
        """
        counts = np.zeros(self.n_weights)
        ones = np.ones(self.n_examples)
        values, _ = self.parser.expect(self.sentences, self._weights(w), temperature, ones, counts)
        return counts, values

    def prediction_losses(
        self, w: ArrayLike, examples: NDArray[np.int64], n_jobs: int | None = None
    ) -> NDArray[np.float64]:
        """Task loss of the best trees of some sentences, in [0, scale]; that of no tree at all is the largest."""
        zero_one = self.loss == "zero-one"
        found = self.parser.best(
            self.sentences, self._weights(w), 2 if zero_one else 1, examples, threads=n_threads(n_jobs)
        )
        if zero_one:
            # Of the two best, the first that is not the truth is the best itself.
            losses = np.where(
                other_than_truth(found.start, found.rows, *self.truths_of(examples)) == 0, self.scale, 0.0
            )
        else:
            losses = np.minimum(self.units[examples] * found.wrong[:, 0], self.scale)
        return np.where(np.isfinite(found.values[:, 0]), losses, self.scale)

    def joint_features(self, start: NDArray[np.int64], rows: Any, examples: NDArray[np.int64]) -> Any:
        """Features of derivations, one of each of the examples: (n, d) in CSR."""
        indptr, indices = self.parser.list_features(start, rows, self.tokens_of(examples))
        phi = sp.csr_array((np.ones(len(indices)), indices, indptr), (len(examples), self.n_weights))
        phi.sum_duplicates()
        return phi

    def max_oracle(self, loss_augmented: bool = True, rescaling: str = "margin") -> ParseOracle:
        """What solvers ask."""
        return (SlackParseOracle if rescaling == "slack" else ParseOracle)(self, loss_augmented)

    def exp_oracle(self, loss_augmented: bool = True) -> ParseExpectations:
        """What solvers ask who smooth the maximum, or maximise likelihood."""
        return ParseExpectations(self, loss_augmented)

    # ------------------------------------------------------------------------------------------------ arrays and names

    def tokens_of(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where the examples' tokens begin, and the tokens of all."""
        return self.sentences.start[examples], self.sentences.token

    def truths_of(self, examples: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
        """Derivations of the examples' trees: where their rows begin (n + 1,), and the rows."""
        return gather(self.truth_start, self.truth, examples)

    def scale_of_loss_and_features(self) -> tuple[float, float]:
        """The largest task loss, and the mean squared norm of the features of the truths."""
        phi = self.joint_features(*self.truths_of(np.arange(self.n_examples)), np.arange(self.n_examples))
        return self.scale, float(self.weight[phi.nonzero()[0]] @ phi.data**2) / float(self.weight.sum())

    def with_weights(self, weights: ArrayLike | None) -> ParseForests:
        """The same problem with other weights of its examples, scaled to mean 1."""
        made = copy(self)
        made.weight = example_weights(weights, self.n_examples)
        return made

    def fingerprint_arrays(self) -> tuple[NDArray[Any], ...]:
        """What a checkpoint knows this problem by."""
        g, p = self.grammar, self.parser
        options = repr((self.loss, self.scale, p.pruning.beam, p.pruning.coarse)).encode()
        of = p.features
        return (
            self.sentences.start, self.sentences.token, self.truth, self.weight, g.binary, g.unary, g.lexical, g.roots,
            np.array([of.first, of.last, of.length, of.split]), of.word_class, np.frombuffer(options, np.uint8),
        )  # fmt: skip

    def feature_names(self) -> list[str]:
        """Readable names of the weights."""
        g, word_class = self.grammar, self.parser.features.word_class
        names, tokens = g.rule_names(), [*g.words, *g.word_classes, ""]
        classes = ["(rare)"] + [""] * int(word_class.max(initial=0))
        for token in np.flatnonzero(word_class):
            classes[word_class[token]] = tokens[token]
        buckets = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in itertools.pairwise(BUCKETS)]
        of = {"first": classes, "last": classes, "length": [*buckets, f"{BUCKETS[-1]}+"]}
        of["split"] = of["length"]
        for kind in SPAN_FEATURES:
            if kind in self.span_features:
                names += [f"{symbol} {kind} {what}" for symbol in g.symbols for what in of[kind]]
        return names

    def _weights(self, w: ArrayLike) -> NDArray[np.float64]:
        weights = np.ascontiguousarray(w, np.float64)
        if weights.shape != (self.n_weights,):
            raise DataError(f"The weights have shape {weights.shape}; this problem has {self.n_weights}.")
        return weights

    def _check_options(self, underivable: str) -> None:
        if self.loss not in LOSSES:
            raise OptionError(
                f'There is no loss {self.loss!r}; for parsing use "brackets" or "zero-one".'
                + did_you_mean(self.loss, LOSSES)
            )
        if not (np.isfinite(self.scale) and self.scale > 0.0):
            raise OptionError(f"scale={self.scale!r} is not possible; it must be a finite number above 0.")
        if underivable not in ("raise", "skip"):
            raise OptionError(f'underivable={underivable!r} is not possible; use "raise" or "skip".')
        unknown = [name for name in self.span_features if name not in SPAN_FEATURES]
        if unknown:
            known = ", ".join(f'"{name}"' for name in SPAN_FEATURES)
            raise OptionError(
                f"There is no span feature {unknown[0]!r}; known names are {known}."
                + did_you_mean(unknown[0], SPAN_FEATURES)
            )

    def _make_features(
        self, start: NDArray[np.int64], token: NDArray[np.int32], min_count: int, word_class: ArrayLike | None
    ) -> tuple[SpanFeatures, int]:
        """Where the weights of span features begin, and how many weights there are in all."""
        g = self.grammar
        if word_class is None:
            seen = np.bincount(token, minlength=g.n_tokens + 1) >= min_count
            seen[-1] = False
            classes = np.where(seen, np.cumsum(seen), 0).astype(np.int32)
        else:
            classes = np.ascontiguousarray(word_class, np.int32)
            if classes.shape != (g.n_tokens + 1,):
                raise DataError(f"word_class has shape {classes.shape}; expected ({g.n_tokens + 1},), one per token.")
        n_classes, at, base = int(classes.max()) + 1, g.n_rules, []
        for name in SPAN_FEATURES:
            base.append(at if name in self.span_features else -1)
            if base[-1] >= 0:
                at += len(g.symbols) * (n_classes if name in ("first", "last") else len(BUCKETS))
        lengths = np.arange(int(np.diff(start).max(initial=0)) + 1)
        buckets = np.maximum(np.searchsorted(BUCKETS, lengths, side="right") - 1, 0).astype(np.int32)
        first, last, length, split = base
        return SpanFeatures(first, last, length, split, n_classes, len(BUCKETS), classes, buckets), at

    def _gold_brackets(self) -> tuple[NDArray[np.int64], Any]:
        """Brackets of all truths in the order of the chart."""
        rules, rows = self.parser.rules, self.truth
        example = np.repeat(np.arange(self.n_examples), np.diff(self.truth_start))
        n_binary, n_chains = len(self.grammar.binary), len(self.grammar.unary)
        bottoms = np.flatnonzero((rows.split >= 0) & (rules.label[rows.symbol] >= 0))
        chains = np.flatnonzero((rows.rule >= n_binary) & (rows.rule < n_binary + n_chains))
        u = rows[chains].rule - n_binary
        sizes = np.diff(rules.chain_start)[u]
        at = np.concatenate([bottoms, np.repeat(chains, sizes)])
        places = np.repeat(rules.chain_start[u] - offsets(sizes)[:-1], sizes) + np.arange(int(sizes.sum()))
        labels = np.concatenate([rules.label[rows[bottoms].symbol], rules.chain_label[places]])
        order = np.lexsort((labels, -rows[at].begin, rows[at].end, example[at]))
        gold = records(BRACKET, rows[at].begin, rows[at].end, labels)[order]
        return offsets(np.bincount(example[at], minlength=self.n_examples)), gold


_NO_ROWS, _NO_TOKENS = records(ROW, []), np.empty(0, np.int32)


def _words(sentences: Sequence[Any] | None, trees: Sequence[Tree] | None) -> list[Any]:
    if trees is not None:
        for m, tree in enumerate(trees):
            if not isinstance(tree, Tree):
                raise DataError(f"Example {m}: its truth is a {type(tree).__name__}; expected a Tree.")
    if sentences is None:
        if trees is None:
            raise DataError("There are no examples: neither sentences nor trees were given.")
        return [tree.words() for tree in trees]
    given = list(sentences)
    if trees is not None and len(trees) != len(given):
        raise DataError(f"There are {len(given)} sentences, but {len(trees)} trees; expected a tree for each sentence.")
    for m, one in enumerate(given):
        if isinstance(one, str):
            raise DataError(f"Example {m} is a string; expected a list of words.")
    return given


def _tokens(grammar: Grammar, m: int, given: Any) -> NDArray[np.int32]:
    """The tokens of a sentence; a word that the grammar has no token for becomes one that no rule derives."""
    if len(given) == 0:
        return _NO_TOKENS
    if isinstance(given[0], str):
        try:
            return grammar.tokens(given)
        except DataError:
            return np.concatenate([_token_or_none(grammar, word) for word in given])
    tokens = np.asarray(given)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or (tokens < 0).any() or (tokens > grammar.n_tokens).any():
        raise DataError(f"Example {m}: expected a list of words, or tokens from 0 to {grammar.n_tokens - 1}.")
    return tokens.astype(np.int32)


def _token_or_none(grammar: Grammar, word: str) -> NDArray[np.int32]:
    try:
        return grammar.tokens([word])
    except DataError:
        return np.array([grammar.n_tokens], np.int32)


def _derive(grammar: Grammar, tokens: list[NDArray[np.int32]], trees: Sequence[Tree], underivable: str) -> list[Any]:
    """The derivation of each tree, None for those to leave out."""
    out: list[Any] = []
    first_lexical, problems = grammar.n_rules - len(grammar.lexical), []
    for m, tree in enumerate(trees):
        try:
            rows = grammar.spans_of(tree)
        except DataError as error:
            problems.append(f"Example {m}: {error}")
            if underivable == "raise":
                raise DataError(f'{problems[0]} Use underivable="skip" to leave such examples out.') from error
            out.append(None)
            continue
        words = rows.rule[rows.rule >= first_lexical] - first_lexical
        if not np.array_equal(grammar.lexical[words, 1], tokens[m]):
            raise DataError(f"Example {m}: the words of its tree are not those of the sentence.")
        if rows[0].symbol not in grammar.roots:
            raise DataError(f"Example {m}: the tree's root {tree.label} is no root of the grammar.")
        out.append(rows)
    if problems:
        more = f" So are {len(problems) - 1} more." if len(problems) > 1 else ""
        warnings.warn(f"{problems[0]} It is left out.{more}", RuntimeWarning, stacklevel=3)
    return out
