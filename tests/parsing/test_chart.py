"""Charts against the enumeration of all derivations of random small grammars, dead ends, chains and ties included."""

import itertools
from collections import Counter
from functools import cache

import numpy as np
import pytest

from maxmargin.errors import OptionError, TooLargeError
from maxmargin.parsing.chart import BRACKET, Brackets, SpanFeatures
from maxmargin.parsing.grammar import Grammar
from maxmargin.parsing.k_best import Search
from maxmargin.parsing.parser import Parser

TOLERANCE = 1e-10
NAMES = ("first", "last", "length", "split")


def random_grammar(rng, n_symbols=None, n_tokens=3):
    """Few symbols, one of them hidden; some rules lead nowhere, some chains have labels in between."""
    n = int(rng.integers(3, 6)) if n_symbols is None else n_symbols
    hidden = np.zeros(n, bool)
    hidden[-1] = True
    pairs = np.array(list(itertools.product(range(n), repeat=3)))
    binary = pairs[rng.random(len(pairs)) < rng.choice([0.15, 0.3])]
    visible = list(range(n - 1))
    chains = {
        (int(rng.choice(visible)), int(rng.choice(visible)), rng.choice(["", "A", "A B", "L0"])) for _ in range(4)
    }
    chains = sorted(chains)
    lexical = [(a, t) for a in visible for t in range(n_tokens) if rng.random() < 0.5]
    return Grammar(
        [f"s{a}" for a in range(n)],
        [f"t{t}" for t in range(n_tokens)],
        [],
        binary,
        [(top, bottom) for top, bottom, _ in chains],
        lexical,
        np.array(sorted(set(rng.choice(visible, 2).tolist()))),
        hidden,
        [tuple(between.split()) for *_, between in chains],
        # Two symbols may give the same label.
        [f"L{a // 2}" for a in range(n - 1)] + [""],
    )


def enumerate_derivations(grammar, tokens):
    """Every derivation of a sentence, as tuples of rows (begin, end, symbol, rule, split)."""
    n_binary, n_unary = len(grammar.binary), len(grammar.unary)
    known = {}

    def bottoms(i, j):
        out = {}
        if j - i == 1:
            for r, (tag, token) in enumerate(grammar.lexical.tolist()):
                if token == tokens[i]:
                    out.setdefault(tag, []).append(((i, j, tag, n_binary + n_unary + r, -1),))
            return out
        for k in range(i + 1, j):
            lefts, rights = tops(i, k), tops(k, j)
            for r, (a, b, c) in enumerate(grammar.binary.tolist()):
                for x, y in itertools.product(lefts.get(b, []), rights.get(c, [])):
                    out.setdefault(a, []).append(((i, j, a, r, k), *x, *y))
        return out

    def tops(i, j):
        if (i, j) not in known:
            below = bottoms(i, j)
            out = {a: list(found) for a, found in below.items()}
            for r, (a, c) in enumerate(grammar.unary.tolist()):
                out.setdefault(a, []).extend(((i, j, a, n_binary + r, -1), *x) for x in below.get(c, []))
            known[i, j] = out
        return known[i, j]

    if len(tokens) == 0:
        return []
    return [y for root in grammar.roots.tolist() for y in tops(0, len(tokens)).get(root, [])]


def count_derivations(grammar, tokens):
    """How many there are, so that enumeration stays small."""
    n, top = len(tokens), {}
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j, bottom = i + length, Counter()
            if length == 1:
                bottom.update(tag for tag, token in grammar.lexical.tolist() if token == tokens[i])
            for k in range(i + 1, j):
                for a, b, c in grammar.binary.tolist():
                    bottom[a] += top[i, k][b] * top[k, j][c]
            top[i, j] = bottom.copy()
            for a, c in grammar.unary.tolist():
                top[i, j][a] += bottom[c]
    return sum(top[0, n][root] for root in grammar.roots.tolist()) if n else 0


def brackets_of(grammar, rows):
    """The labels above the tags with their spans, from the tree itself."""
    out = Counter()

    def walk(node, begin):
        if node.is_tag:
            return begin + 1
        end = begin
        for child in node.children:
            end = walk(child, end)
        out[begin, end, node.label] += 1
        return end

    walk(grammar.build(np.array(rows)), 0)
    return out


def bucket_of(length):
    return [1, 2, 3, 5].index(max(one for one in [1, 2, 3, 5] if one <= length))


def some_features(grammar, names):
    """A vocabulary of two word classes: token 0, and all others."""
    n, at, base = len(grammar.symbols), grammar.n_rules, []
    for name in NAMES:
        base.append(at if name in names else -1)
        at += n * (2 if name in ("first", "last") else 4) if name in names else 0
    classes = np.array([0] + [1] * grammar.n_tokens, np.int32)
    buckets = np.array([0] + [bucket_of(length) for length in range(1, 20)], np.int32)
    return SpanFeatures(*base, 2, 4, classes, buckets), at


def phi(grammar, names, tokens, rows):
    """Joint features by name."""
    out = Counter()
    for i, j, a, rule, split in rows:
        out["rule", rule] += 1
        if split >= 0:
            for name in names:
                what = {
                    "first": int(tokens[i] != 0), "last": int(tokens[j - 1] != 0), "length": bucket_of(j - i),
                    "split": bucket_of(j - split),
                }[name]  # fmt: skip
                out[name, a, what] += 1
    return out


def place(grammar, names, key):
    """The number of a named feature."""
    if key[0] == "rule":
        return key[1]
    at = grammar.n_rules
    for name in NAMES:
        width = 2 if name in ("first", "last") else 4
        if name == key[0]:
            return at + key[1] * width + key[2]
        at += len(grammar.symbols) * width if name in names else 0
    raise AssertionError


def dense(grammar, names, tokens, rows, d):
    out = np.zeros(d)
    for key, times in phi(grammar, names, tokens, rows).items():
        out[place(grammar, names, key)] += times
    return out


def label_numbers(grammar):
    """Label ids in the order in which `chart_rules` meets them: symbols first, then chains."""
    names = {}
    for name, hidden in zip(grammar.labels, grammar.hidden, strict=True):
        if not hidden:
            names.setdefault(name, len(names))
    for top, between in zip(grammar.unary[:, 0], grammar.chains, strict=True):
        for name in (grammar.labels[top], *between):
            names.setdefault(name, len(names))
    return names


def batch(grammar, sentences, gold=None):
    """Sentences with the brackets of their truths."""
    names, rows, starts = label_numbers(grammar), [], [0]
    for m in range(len(sentences)):
        if gold is not None and gold[m] is not None:
            found = brackets_of(grammar, gold[m])
            rows += sorted(
                ((i, j, names[label]) for (i, j, label), n in found.items() for _ in range(n)),
                key=lambda row: (row[1], -row[0], row[2]),
            )
        starts.append(len(rows))
    ends = np.cumsum([0] + [len(s) for s in sentences])
    return Brackets(
        ends.astype(np.int64),
        np.concatenate([np.empty(0, np.int32), *sentences]).astype(np.int32),
        np.array(starts, np.int64),
        np.array(rows, BRACKET).view(np.recarray),
    )


class Case:
    """A random grammar with weights, sentences of up to five words and all their derivations."""

    def __init__(self, seed, names=(), whole=False, longest=5):
        rng = np.random.default_rng(seed)
        self.rng, self.names = rng, names
        self.grammar = random_grammar(rng)
        self.features, self.d = some_features(self.grammar, names)
        self.sentences = []
        for _ in range(4):
            sentence = rng.integers(0, 3, int(rng.integers(1, longest + 1)))
            while count_derivations(self.grammar, sentence.tolist()) > 150:
                sentence = sentence[:-1]
            self.sentences.append(sentence)
        self.all = [enumerate_derivations(self.grammar, s.tolist()) for s in self.sentences]
        self.w = rng.integers(-1, 2, self.d).astype(float) if whole else rng.normal(size=self.d)
        self.gold = [found[int(rng.integers(len(found)))] if found else None for found in self.all]
        self.batch = batch(self.grammar, self.sentences, self.gold)
        self.unit = rng.choice([0.0, 0.3, 2.0], 4)
        self.parser = Parser(self.grammar, self.features)

    @cache  # noqa: B019
    def phi(self, m):
        rows = [dense(self.grammar, self.names, self.sentences[m], y, self.d) for y in self.all[m]]
        return np.array(rows).reshape(-1, self.d)

    @cache  # noqa: B019
    def wrong(self, m):
        if self.gold[m] is None:
            return np.zeros(0)
        gold = brackets_of(self.grammar, self.gold[m])
        out = []
        for y in self.all[m]:
            own = brackets_of(self.grammar, y)
            out.append(((own - gold) + (gold - own)).total())
        return np.array(out)

    def scores(self, m, augmented):
        constant = sum(brackets_of(self.grammar, self.gold[m]).values()) if self.gold[m] else 0
        return self.phi(m) @ self.w + (self.unit[m] * (self.wrong(m) - constant) if augmented else 0.0)


def derivation(found, m, r, k):
    rows = found.rows[found.start[m * k + r] : found.start[m * k + r + 1]]
    return tuple(tuple(int(x) for x in row) for row in rows)


@cache
def cases(names=(), whole=False, count=40):
    some = [Case(seed, names, whole) for seed in range(count)]
    # The random grammars are worth something only if many sentences are ambiguous, and some have no derivation.
    sizes = np.array([len(found) for case in some for found in case.all])
    assert (sizes > 5).mean() > 0.2
    assert (sizes == 0).any()
    return some


@pytest.mark.parametrize("names", [(), NAMES, ("last", "split")], ids=["rules", "all-features", "two-features"])
@pytest.mark.parametrize("augmented", [False, True], ids=["plain", "loss-augmented"])
def test_the_k_best_are_those_of_enumeration(names, augmented):
    for case in cases(names):
        for k in (1, 2, 7):
            found = case.parser.best(case.batch, case.w, k, units=case.unit if augmented else None)
            for m in range(4):
                scores, n = case.scores(m, augmented), min(k, len(case.all[m]))
                order = np.argsort(-scores, kind="stable")[:n]
                np.testing.assert_allclose(found.values[m, :n], scores[order], rtol=0, atol=TOLERANCE)
                assert (found.values[m, n:] == -np.inf).all()
                got = [derivation(found, m, r, k) for r in range(n)]
                # With weights of full precision derivations have different scores, unless they use the same rules.
                assert len(set(got)) == n
                for r, y in enumerate(got):
                    at = case.all[m].index(y)
                    assert abs(scores[at] - found.values[m, r]) < TOLERANCE
                    assert found.wrong[m, r] == (case.wrong(m)[at] if case.gold[m] else 0)


@pytest.mark.parametrize("names", [(), NAMES], ids=["rules", "all-features"])
@pytest.mark.parametrize("options", [{}, {"beam": 0.5}, {"coarse": 0.3}], ids=["exact", "beam", "coarse"])
def test_the_best_is_that_of_a_search_to_the_bit(names, options):
    class SearchingParser(Parser):
        def _borrow(self, longest, k):
            return super()._borrow(longest, k)[0], Search.of(longest, k)

    for case in cases(names):
        parsers = [kind(case.grammar, case.features, **options) for kind in (Parser, SearchingParser)]
        # Whole numbers tie often.
        for w in (case.w, np.round(case.w), np.zeros(case.d)):
            for units in (None, case.unit):
                one, other = (parser.best(case.batch, w, units=units) for parser in parsers)
                for name in ("values", "wrong", "start", "rows"):
                    np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_all_derivations_come_once_when_k_is_large():
    for case in cases(whole=True, count=15):
        k = max(1, max(len(found) for found in case.all)) + 3
        if k > 400:
            continue
        found = case.parser.best(case.batch, case.w, k)
        for m in range(4):
            got = [derivation(found, m, r, k) for r in range(len(case.all[m]))]
            assert sorted(got) == sorted(case.all[m])
            assert (np.diff(found.values[m, : len(got)]) <= 1e-9).all()
            assert (found.values[m, len(got) :] == -np.inf).all()


def test_ties_give_different_derivations():
    seen = 0
    for case in cases(whole=True):
        found = case.parser.best(case.batch, np.zeros(case.d), 2)
        for m in range(4):
            if len(case.all[m]) >= 2:
                seen += 1
                assert derivation(found, m, 0, 2) != derivation(found, m, 1, 2)
                assert (found.values[m] == 0.0).all()
    assert seen > 30


@pytest.mark.parametrize("names", [(), NAMES], ids=["rules", "all-features"])
@pytest.mark.parametrize("temperature", [1.0, 0.05, 8.0])
def test_inside_outside_is_a_softmax_over_all_derivations(names, temperature):
    for case in cases(names, count=25):
        times, counts = case.rng.normal(size=4), np.zeros(case.d)
        values, wrong = case.parser.expect(case.batch, case.w, temperature, times, counts, units=case.unit)
        expected = np.zeros(case.d)
        for m in range(4):
            if not case.all[m]:
                assert values[m] == -np.inf
                assert wrong[m] == 0.0
                continue
            scores = case.scores(m, True)
            p = np.exp((scores - scores.max()) / temperature)
            total = scores.max() + temperature * np.log(p.sum())
            p /= p.sum()
            assert abs(values[m] - total) < TOLERANCE
            assert abs(wrong[m] - p @ case.wrong(m)) < TOLERANCE
            expected += times[m] * (p @ case.phi(m))
        np.testing.assert_allclose(counts, expected, rtol=0, atol=TOLERANCE)


def test_the_gradient_of_the_log_partition_is_the_expected_features():
    for seed in (1, 4, 9):
        case = Case(seed, NAMES)
        counts = np.zeros(case.d)
        finite = [m for m in range(4) if case.all[m]]
        chosen = np.array(finite, np.int64)
        case.parser.expect(case.batch, case.w, 0.7, np.ones(4), counts, chosen, case.unit)
        for d in case.rng.choice(case.d, 12, replace=False):
            value = []
            for step in (1e-5, -1e-5):
                w = case.w.copy()
                w[d] += step
                value.append(
                    case.parser.expect(case.batch, w, 0.7, np.zeros(4), np.zeros(case.d), chosen, case.unit)[0]
                )
            assert abs((value[0] - value[1]).sum() / 2e-5 - counts[d]) < 1e-7


def test_low_temperatures_and_large_weights_do_not_overflow():
    for case in cases(count=10):
        counts = np.zeros(case.d)
        values, _ = case.parser.expect(case.batch, 1e4 * case.w, 1e-2, np.ones(4), counts)
        assert np.isfinite(counts).all()
        for m in range(4):
            if case.all[m]:
                scores = 1e4 * case.phi(m) @ case.w
                best = scores.max()
                # Derivations that use the same rules tie.
                assert values[m] == pytest.approx(best + 1e-2 * np.log(np.exp((scores - best) / 1e-2).sum()), rel=1e-12)


def test_rules_that_are_forbidden_are_not_used():
    for case in cases(count=20):
        w = case.w.copy()
        w[case.rng.random(case.d) < 0.2] = -np.inf
        found = case.parser.best(case.batch, w, 3)
        counts = np.zeros(case.d)
        values, _ = case.parser.expect(case.batch, w, 1.0, np.ones(4), counts)
        assert (counts[np.isneginf(w)] == 0.0).all()
        for m in range(4):
            with np.errstate(invalid="ignore"):
                scores = np.array([sum(w[row[3]] for row in y) for y in case.all[m]])
            scores = np.sort(scores[scores > -np.inf])[::-1]
            n = min(3, len(scores))
            np.testing.assert_allclose(found.values[m, :n], scores[:n], rtol=0, atol=TOLERANCE)
            assert (found.values[m, n:] == -np.inf).all()
            total = np.log(np.exp(scores).sum()) if len(scores) else -np.inf
            assert values[m] == pytest.approx(total, abs=TOLERANCE)


def test_features_and_scores_of_derivations():
    for case in cases(NAMES, count=10):
        found = case.parser.best(case.batch, case.w)
        firsts = case.batch.start[:-1]
        tokens = firsts, case.batch.token
        times, out = case.rng.normal(size=4), np.zeros(case.d)
        case.parser.add_features(found.start, found.rows, tokens, times, out)
        start, indices = case.parser.list_features(found.start, found.rows, tokens)
        scores = case.parser.scores(case.w, found.start, found.rows, tokens)
        expected = np.zeros(case.d)
        for m in range(4):
            own = dense(case.grammar, NAMES, case.sentences[m], derivation(found, m, 0, 1), case.d)
            expected += times[m] * own
            listed = np.bincount(indices[start[m] : start[m + 1]], minlength=case.d)
            np.testing.assert_array_equal(listed, own)
            assert abs(scores[m] - own @ case.w) < TOLERANCE
        np.testing.assert_allclose(out, expected, atol=1e-12)


def test_threads_and_choice_do_not_change_the_bits():
    case = Case(3, NAMES, longest=4)
    sentences = [case.rng.integers(0, 3, int(case.rng.integers(1, 12))) for _ in range(40)]
    several = batch(case.grammar, sentences)
    one, two = (case.parser.best(several, case.w, 2, threads=threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    chosen = np.array([17, 3, 3])
    some = case.parser.best(several, case.w, 2, chosen)
    np.testing.assert_array_equal(some.values, one.values[chosen])
    assert [derivation(some, 0, r, 2) for r in range(2)] == [derivation(one, 17, r, 2) for r in range(2)]


# ------------------------------------------------------------------------------------------------------- pruning


def test_a_wide_beam_changes_nothing_and_a_narrow_one_never_gains():
    lost = 0
    for case in cases():
        exact = case.parser.best(case.batch, case.w, 2)
        wide = Parser(case.grammar, case.features, beam=1e3).best(case.batch, case.w, 2)
        np.testing.assert_array_equal(wide.values, exact.values)
        narrow = Parser(case.grammar, case.features, beam=0.5).best(case.batch, case.w)
        assert (narrow.values[:, 0] <= exact.values[:, 0] + TOLERANCE).all()
        # What is found is a derivation with that score, and something is found wherever there is something.
        for m in range(4):
            if case.all[m]:
                at = case.all[m].index(derivation(narrow, m, 0, 1))
                assert abs(case.scores(m, False)[at] - narrow.values[m, 0]) < TOLERANCE
        lost += (narrow.values[:, 0] < exact.values[:, 0] - 1e-9).sum()
    assert lost > 3


def test_coarse_to_fine_keeps_what_is_likely():
    lost = 0
    for case in cases():
        exact = case.parser.best(case.batch, case.w, 2)
        # Only what is impossible under the coarse grammar goes.
        safe = Parser(case.grammar, case.features, coarse=1e-25).best(case.batch, case.w, 2)
        np.testing.assert_array_equal(safe.values, exact.values)
        narrow = Parser(case.grammar, case.features, coarse=0.3).best(case.batch, case.w)
        assert (narrow.values[:, 0] <= exact.values[:, 0] + TOLERANCE).all()
        assert ((narrow.values[:, 0] > -np.inf) == (exact.values[:, 0] > -np.inf)).all()
        lost += (narrow.values[:, 0] < exact.values[:, 0] - 1e-9).sum()
    assert lost > 3


# ------------------------------------------------------------------------------------------------------- bad input


def test_a_sentence_without_a_derivation_is_a_clear_result():
    grammar = Grammar(["S", "A"], ["a", "b"], [], [(0, 1, 1)], [], [(1, 0)], [0])
    parser = Parser(grammar)
    # Two words are derived; one, three, none, and an unknown one are not.
    sentences = [[0, 0], [0], [0, 0, 0], [], [0, 1], [0, 2]]
    several = batch(grammar, [np.array(s, np.int32) for s in sentences])
    found = parser.best(several, np.array([1.0, 0.25]), 2)
    np.testing.assert_array_equal(found.values[:, 0], [1.5, *[-np.inf] * 5])
    np.testing.assert_array_equal(np.diff(found.start), [3, *[0] * 11])
    counts = np.zeros(2)
    values, _ = parser.expect(several, np.array([1.0, 0.25]), 1.0, np.ones(6), counts)
    np.testing.assert_allclose(values, [1.5, *[-np.inf] * 5])
    np.testing.assert_allclose(counts, [1.0, 2.0])


def test_a_long_sentence_is_refused_with_the_memory_it_would_take_or_handled():
    grammar = Grammar(["S", "A"], ["a"], [], [(0, 1, 0), (0, 1, 1)], [], [(1, 0)], [0])
    several = batch(grammar, [np.zeros(3, np.int32), np.zeros(1000, np.int32)])
    sentence = r"^Example 1 has 1000 words: its chart with 2 symbols could take 0\.0 GB, and 0\.0 GB are allowed \(memory=1000000\)"
    with pytest.raises(TooLargeError, match=sentence):
        Parser(grammar, memory=1_000_000).best(several, np.zeros(3))
    with pytest.raises(TooLargeError, match="Example 1 has 1000 words"):
        Parser(grammar, memory=1_000_000).expect(several, np.zeros(3), 1.0, np.ones(2), np.zeros(3))
    found = Parser(grammar).best(several, np.array([1.0, 0.0, 0.5]))
    assert found.values[1, 0] == pytest.approx(998 + 500)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"beam": -1.0}, "beam=-1.0"), ({"beam": np.nan}, "beam=nan"), ({"coarse": 1.0}, "coarse=1.0")],
)
def test_options_that_cannot_be(options, sentence):
    grammar = Grammar(["S"], ["a"], [], [(0, 0, 0)], [], [(0, 0)], [0])
    with pytest.raises(OptionError, match=sentence):
        Parser(grammar, **options)
    parser = Parser(grammar)
    for k in (0, 1.5, True):
        with pytest.raises(OptionError, match="k="):
            parser.best(batch(grammar, [np.zeros(2, np.int32)]), np.zeros(2), k)
    with pytest.raises(OptionError, match="temperature=0"):
        parser.expect(batch(grammar, [np.zeros(2, np.int32)]), np.zeros(2), 0.0, np.ones(1), np.zeros(2))
