"""ParseForests and its oracles against the enumeration of all derivations, and training against a quadratic program."""

import itertools
from collections import Counter

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.errors import DataError, OptionError, TooLargeError
from maxmargin.parsing import slack_oracle
from maxmargin.parsing.forests import BUCKETS, SPAN_FEATURES, ParseForests
from maxmargin.parsing.grammar import Grammar, induce
from maxmargin.parsing.trees import Tree
from maxmargin.solvers import (
    BCFW,
    ExcessiveGap,
    Extragradient,
    FrankWolfe,
    NSlack,
    OneSlack,
    Perceptron,
    Status,
    Subgradient,
)  # fmt: skip
from maxmargin.solvers.oracles.max_oracle import oracle_of
from parsing.test_chart import brackets_of, count_derivations, enumerate_derivations

TREEBANK = """
(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))))
(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (NP (DT the) (NN dog)) (PP (IN with) (NP (DT the) (NN cat))))))
(S (NP (NNP Kim)) (VP (VBZ sees) (NP (DT the) (NN dog)) (PP (IN with) (NP (NNP Kim)))))
(S (VP (VBZ sees) (NP (NNP Kim))))
(S (NP (NP (NNP Kim)) (PP (IN with) (NP (DT the) (NN dog)))) (VP (VBZ sees)))
(S (NP (NN dog)) (VP (VBZ sees) (NP (NP (NN cat)) (PP (IN with) (NP (NN dog)))) (PP (IN with) (NP (NNP Kim)))))
(S (NP (NN cat)) (VP (VP (VBZ sees) (NP (NN dog))) (PP (IN with) (NP (NP (NNP Kim)) (PP (IN with) (NP (NN cat)))))))
""".strip().splitlines()


def treebank():
    return [Tree.parse(line) for line in TREEBANK]


def toy(**options):
    trees = treebank()
    grammar, _ = induce(trees, markov=1)
    return ParseForests(grammar, None, trees, **options), trees


class Enumerated:
    """Features and losses of every derivation of every sentence, without charts."""

    def __init__(self, problem, loss="brackets", scale=1.0, names=(), min_count=5):
        g = problem.grammar
        ends = problem.sentences.start
        self.phi, self.loss, self.truth = [], [], []
        tokens = [problem.sentences.token[a:b].tolist() for a, b in itertools.pairwise(ends)]
        seen = Counter(token for sentence in tokens for token in sentence)
        classes = [0] * (g.n_tokens + 1)
        frequent = [token for token in range(g.n_tokens) if seen[token] >= min_count]
        for c, token in enumerate(frequent):
            classes[token] = c + 1
        widths = {"first": len(frequent) + 1, "last": len(frequent) + 1, "length": len(BUCKETS), "split": len(BUCKETS)}
        for m, sentence in enumerate(tokens):
            rows = [tuple(row) for row in problem.truth[problem.truth_start[m] : problem.truth_start[m + 1]].tolist()]
            everything = enumerate_derivations(g, sentence)
            gold = brackets_of(g, rows)
            self.truth.append(everything.index(tuple(rows)))
            phi, losses = [], []
            for y in everything:
                one = np.zeros(problem.n_weights)
                for i, j, a, rule, split in y:
                    one[rule] += 1
                    at = g.n_rules
                    for name in SPAN_FEATURES:
                        if name in names:
                            if split >= 0:
                                length = j - i if name == "length" else j - split
                                bucket = max(b for b in range(len(BUCKETS)) if BUCKETS[b] <= length)
                                what = {"first": classes[sentence[i]], "last": classes[sentence[j - 1]]}.get(
                                    name, bucket
                                )
                                one[at + a * widths[name] + what] += 1
                            at += len(g.symbols) * widths[name]
                own = brackets_of(g, y)
                share = ((own - gold) + (gold - own)).total() / (2 * max(1, gold.total()))
                phi.append(one)
                losses.append(scale * (share if loss == "brackets" else float(y != tuple(rows))))
            self.phi.append(np.array(phi))
            self.loss.append(np.array(losses))

    def products(self, m, w):
        return self.loss[m] * (1.0 + (self.phi[m] - self.phi[m][self.truth[m]]) @ w)

    def margins(self, m, w):
        return self.loss[m] + (self.phi[m] - self.phi[m][self.truth[m]]) @ w


@pytest.fixture(params=[("brackets", 1.0, ()), ("zero-one", 100.0, ()), ("brackets", 2.0, SPAN_FEATURES)], ids=str)
def pair(request):
    loss, scale, names = request.param
    problem, _ = toy(loss=loss, scale=scale, span_features=names, min_count=4)
    return problem, Enumerated(problem, loss, scale, names, 4)


def weights(problem, count=8):
    rng = np.random.default_rng(0)
    yield np.zeros(problem.n_weights)
    for k in range(count):
        yield rng.normal(size=problem.n_weights) * 10.0 ** (k % 3 - 1)


# ------------------------------------------------------------------------------------------------------- oracles


def test_the_max_oracle_finds_the_largest_margin(pair):
    problem, everything = pair
    oracle = oracle_of(problem)
    assert oracle.certificate == "exact"
    assert max(len(phi) for phi in everything.phi) > 5
    for w in weights(problem):
        mean = oracle.mean_plane(w, 1)
        psi, ell = oracle.planes(w, np.arange(problem.n_examples))
        for m in range(problem.n_examples):
            best = everything.margins(m, w).max()
            assert mean.hinges[m] == pytest.approx(best, abs=1e-10)
            # The plane is that of a derivation.
            assert ell[m] - psi[[m]] @ w == pytest.approx(best, abs=1e-9)
            planes = everything.phi[m][everything.truth[m]] - everything.phi[m]
            found = np.abs(planes - psi[[m]].toarray()).max(axis=1) + np.abs(everything.loss[m] - ell[m])
            assert found.min() < 1e-12
        np.testing.assert_allclose(mean.dense(len(w)), psi.T @ problem.weight / problem.n_examples, atol=1e-12)
        assert mean.ell == pytest.approx(problem.weight @ ell / problem.n_examples, abs=1e-12)


def test_the_slack_oracle_finds_the_largest_product(pair):
    problem, everything = pair
    oracle = oracle_of(problem, rescaling="slack")
    assert oracle.certificate == "exact"
    under_the_hull = 0
    for w in weights(problem, 24):
        mean = oracle.mean_plane(w, 1)
        psi, ell = oracle.planes(w, np.arange(problem.n_examples))
        for m in range(problem.n_examples):
            products = everything.products(m, w)
            best = max(products.max(), 0.0)
            assert mean.hinges[m] == pytest.approx(best, abs=1e-9 * (1.0 + best))
            # The plane is that of a derivation.
            assert ell[m] - psi[[m]] @ w == pytest.approx(best, abs=1e-8 * (1.0 + best))
            planes = everything.loss[m][:, None] * (everything.phi[m][everything.truth[m]] - everything.phi[m])
            found = np.abs(planes - psi[[m]].toarray()).max(axis=1) + np.abs(everything.loss[m] - ell[m])
            assert found.min() < 1e-9
            score = everything.phi[m] @ w
            under_the_hull += is_under_the_hull(everything.loss[m], 1.0 + score - score[everything.truth[m]])
        np.testing.assert_allclose(mean.dense(len(w)), psi.T @ problem.weight / problem.n_examples, atol=1e-8)
    # Otherwise nothing but the search along the hull would be tested.
    assert under_the_hull > 0 or not problem.span_features


def is_under_the_hull(a, b):
    """Whether the largest product is at no vertex of the upper hull of the points."""
    best = np.argmax(a * b)
    if a[best] * b[best] <= 0.0:
        return False
    slopes = 10.0 ** np.linspace(-6, 6, 4001)
    return not any((b + slope * a).max() <= b[best] + slope * a[best] + 1e-12 for slope in slopes)


@pytest.mark.parametrize("solver", [OneSlack("slack"), OneSlack("slack", cache=0), NSlack("slack")], ids=str)
@pytest.mark.parametrize("loss", ["brackets", "zero-one"])
def test_slack_rescaling_is_trained_to_the_optimum(loss, solver):
    problem, _ = toy(loss=loss)
    everything = Enumerated(problem, loss, 1.0, (), 5)
    result = solver.solve(problem, 2.0, tol=1e-4, max_passes=5000)
    assert result.status is Status.CONVERGED
    assert result.certificate == "exact"

    def value(w):
        hinges = [max(everything.products(m, w).max(), 0.0) for m in range(problem.n_examples)]
        return w @ w / 4.0 + problem.weight @ hinges / problem.n_examples

    assert value(result.weights) == pytest.approx(result.primal, abs=1e-8)
    # The dual bounds every value from below: at the weights found, at 0, and at those of another solver.
    other = OneSlack("slack", step=1.0).solve(problem, 2.0, tol=1e-3, max_passes=5000)
    assert result.dual <= min(value(other.weights), value(np.zeros(problem.n_weights))) + 1e-9
    assert other.dual <= result.primal + 1e-9


def test_without_enough_ranks_hinges_are_bounds(monkeypatch):
    monkeypatch.setattr(slack_oracle, "_RANKS", ())
    problem, _ = toy()
    everything = Enumerated(problem, "brackets", 1.0, (), 5)
    oracle = oracle_of(problem, rescaling="slack")
    for w in weights(problem, 12):
        mean = oracle.mean_plane(w, 1)
        best = np.array([max(everything.products(m, w).max(), 0.0) for m in range(problem.n_examples)])
        assert (mean.hinges >= best - 1e-9).all()
        psi, ell = oracle.planes(w, np.arange(problem.n_examples))
        assert (ell - psi @ w <= best + 1e-9).all()
        loose = ~np.isnan(oracle.hinge_bounds)
        np.testing.assert_allclose(mean.hinges[loose], oracle.hinge_bounds[loose])
    result = OneSlack("slack").solve(problem, 2.0, tol=1e-3, max_passes=30)
    exact = NSlack("slack").solve(problem, 2.0, tol=1e-3, max_passes=30)
    for one in (result, exact):
        hinges = [max(everything.products(m, one.weights).max(), 0.0) for m in range(problem.n_examples)]
        w = one.weights
        assert one.primal >= w @ w / 4.0 + problem.weight @ hinges / problem.n_examples - 1e-9


def test_without_the_loss_planes_are_those_of_predictions(pair):
    problem, everything = pair
    oracle = oracle_of(problem, loss_augmented=False)
    for w in weights(problem, 3):
        psi, ell = oracle.planes(w, np.arange(problem.n_examples))
        assert (ell == 0.0).all()
        for m in range(problem.n_examples):
            scores = everything.phi[m] @ w
            assert (-psi[[m]] @ w)[0] == pytest.approx(scores.max() - scores[everything.truth[m]], abs=1e-10)


@pytest.mark.parametrize("hotness", [1.0, 0.1])
def test_the_exp_oracle_is_a_soft_maximum(pair, hotness):
    problem, everything = pair
    temperature = hotness * problem.scale
    for w in weights(problem, 4):
        found = problem.exp_oracle().mean(w, temperature)
        psi, ell = np.zeros(problem.n_weights), 0.0
        for m in range(problem.n_examples):
            margins = everything.margins(m, w)
            p = np.exp((margins - margins.max()) / temperature)
            value = margins.max() + temperature * np.log(p.sum())
            p /= p.sum()
            assert found.values[m] == pytest.approx(value, abs=1e-9)
            psi += problem.weight[m] * (everything.phi[m][everything.truth[m]] - p @ everything.phi[m])
            ell += problem.weight[m] * (p @ everything.loss[m])
        np.testing.assert_allclose(found.psi, psi / problem.n_examples, atol=1e-10)
        assert found.ell == pytest.approx(ell / problem.n_examples, abs=1e-9)


def test_temperatures_too_low_for_zero_one_are_refused():
    problem, _ = toy(loss="zero-one", scale=100.0)
    with pytest.raises(OptionError, match=r"temperature=5 is too low.*at least 6\.67"):
        problem.exp_oracle().mean(np.zeros(problem.n_weights), 5)


def test_chains_that_repeat_labels():
    """A chain may put a label over itself, so that brackets are a multiset."""
    grammar = Grammar(
        ["S", "NP", "N", "V"],
        ["a", "b"],
        [],
        [(0, 0, 0), (0, 1, 0), (1, 1, 1), (0, 2, 3), (1, 2, 2)],
        [(0, 1), (1, 2), (0, 2), (0, 0), (0, 3)],
        [(2, 0), (3, 0), (2, 1)],
        [0, 1],
        chains=[(), (), ("NP",), ("NP", "S"), ()],
    )
    rng = np.random.default_rng(3)
    seen = 0
    for loss, scale in (("brackets", 1.0), ("zero-one", 5.0)):
        for _ in range(12):
            sentences, trees = [], []
            while len(sentences) < 3:
                sentence = rng.integers(0, 2, int(rng.integers(1, 4))).tolist()
                if 1 <= count_derivations(grammar, sentence) <= 400:
                    found = enumerate_derivations(grammar, sentence)
                    trees.append(grammar.build(np.array(found[int(rng.integers(len(found)))])))
                    sentences.append(sentence)
            problem = ParseForests(grammar, sentences, trees, loss, scale)
            everything = Enumerated(problem, loss, scale)
            oracle = problem.max_oracle()
            for w in (rng.normal(size=grammar.n_rules), rng.integers(-1, 2, grammar.n_rules).astype(float)):
                hinges = oracle.mean_plane(w, 1).hinges
                best = [everything.margins(m, w).max() for m in range(3)]
                np.testing.assert_allclose(hinges, best, atol=1e-10)
                seen += sum(len(phi) > 10 for phi in everything.phi)
    assert seen > 30


def test_threads_and_sample_weights():
    trees = treebank() * 3
    grammar, _ = induce(trees, markov=1)
    sample_weight = np.arange(1.0, 22.0)
    problem = ParseForests(grammar, None, trees, sample_weight=sample_weight)
    w = np.random.default_rng(1).normal(size=problem.n_weights)
    for answer in (lambda n: problem.max_oracle().mean_plane(w, n), lambda n: problem.exp_oracle().mean(w, 0.5, n)):
        one, two = answer(1), answer(2)
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(problem.weight, sample_weight / sample_weight.mean())


# ------------------------------------------------------------------------------------------------------- training


def optimum(problem, everything, C):
    """The least value of P, with all derivations written out."""
    n, d = problem.n_examples, problem.n_weights
    rows, rhs = [], []
    for m in range(n):
        slack = np.zeros(n)
        slack[m] = -1.0
        for phi, loss in zip(everything.phi[m], everything.loss[m], strict=True):
            rows.append(np.concatenate([phi - everything.phi[m][everything.truth[m]], slack]))
            rhs.append(-loss)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    quadratic = sp.csc_matrix(sp.diags(np.concatenate([np.full(d, 1.0 / C), np.zeros(n)])))
    linear = np.concatenate([np.zeros(d), problem.weight / n])
    cones = [clarabel.NonnegativeConeT(len(rhs))]
    solution = clarabel.DefaultSolver(
        quadratic, linear, sp.csc_matrix(np.array(rows)), np.array(rhs), cones, settings
    ).solve()
    return solution.obj_val


@pytest.mark.parametrize("loss", ["brackets", "zero-one"])
@pytest.mark.parametrize(
    ("solver", "tol"),
    [(BCFW(), 1e-4), (FrankWolfe(), 2e-2), (Subgradient(), 2e-2)],
    ids=["bcfw", "frank-wolfe", "subgradient"],
)
def test_training_closes_the_gap(solver, tol, loss):
    problem, _ = toy(loss=loss)
    best = optimum(problem, Enumerated(problem, loss), 1.0)
    result = solver.solve(problem, 1.0, tol=tol, max_passes=3000)
    assert result.status is Status.CONVERGED
    assert result.certificate == "exact"
    assert result.dual <= best + 1e-7
    assert result.primal >= best - 1e-7
    assert result.gap <= tol


def test_the_perceptron_learns_the_treebank():
    problem, trees = toy(span_features=SPAN_FEATURES, min_count=1)
    result = Perceptron().solve(problem, max_passes=100)
    # It ends when the last weights make no mistake; those that are reported are a mean.
    assert result.status is Status.STALLED
    last = result.state.v
    assert problem.predict(last) == trees
    assert (problem.parse(last).wrong[:, 0] == 0).all()


def test_new_sentences_are_parsed_with_the_same_features():
    problem, trees = toy(span_features=("first", "split"), min_count=2)
    w = BCFW().solve(problem, 100.0, tol=1e-3).weights
    new = problem.on([tree.words() for tree in trees[:3]])
    assert not new.has_labels
    assert new.n_weights == problem.n_weights
    assert new.predict(w, n_jobs=2) == trees[:3]
    two = new.k_best(w, 2)
    assert [found[0] for found in two] == trees[:3]
    assert all(found[0] != found[1] for found in two if len(found) > 1)
    assert len(problem.feature_names()) == problem.n_weights
    assert len(set(problem.feature_names())) == problem.n_weights


def test_pruning_takes_the_certificate_away():
    problem, _ = toy(beam=1.0)
    result = BCFW().solve(problem, 1.0, tol=1e-2, max_passes=20)
    assert result.certificate == "none"
    assert result.status is not Status.CONVERGED
    assert problem.on(None, treebank()).max_oracle().certificate == "none"
    assert toy(coarse=0.01)[0].max_oracle().certificate == "none"


def test_marginals_are_those_of_enumeration():
    problem, _ = toy(span_features=("length",))
    everything = Enumerated(problem, names=("length",))
    w = np.random.default_rng(5).normal(size=problem.n_weights)
    counts, values = problem.marginals(w, 0.7)
    expected = np.zeros(problem.n_weights)
    for m, phi in enumerate(everything.phi):
        p = np.exp(phi @ w / 0.7)
        assert values[m] == pytest.approx(0.7 * np.log(p.sum()), abs=1e-10)
        expected += p / p.sum() @ phi
    np.testing.assert_allclose(counts, expected, atol=1e-10)


def test_a_checkpoint_knows_its_problem(tmp_path):
    problem, _ = toy()
    path = tmp_path / "state.mm"
    half = BCFW().solve(problem, 1.0, tol=0.0, max_passes=3, checkpoint=path)
    whole = BCFW().solve(problem, 1.0, tol=0.0, max_passes=6, checkpoint=path)
    straight = BCFW().solve(problem, 1.0, tol=0.0, max_passes=6)
    assert half.n_passes == 3
    np.testing.assert_array_equal(whole.weights, straight.weights)
    with pytest.raises(OptionError):
        BCFW().solve(toy(loss="zero-one")[0], 1.0, tol=0.0, max_passes=6, checkpoint=path)


# ------------------------------------------------------------------------------------------------------- bad input


def test_a_sentence_without_a_parse_is_a_clear_result():
    problem, trees = toy()
    new = problem.on([["sees", "sees"], trees[0].words(), [], ["the", "zebra"]])
    w = np.zeros(problem.n_weights)
    found = new.predict(w)
    assert found[0] is None
    assert found[1] is not None
    assert found[2] is None
    np.testing.assert_array_equal(new.parse(w).values[[0, 2], 0], -np.inf)
    counts, values = new.marginals(w)
    assert np.isfinite(counts).all()
    assert np.isfinite(values[1])


def test_a_word_without_a_class_has_no_parse():
    grammar = Grammar(["S", "A"], ["a"], [], [(0, 1, 1)], [], [(1, 0)], [0])
    assert ParseForests(grammar, [["a", "zebra"], ["a", "a"]]).predict([0.0, 0.0])[0] is None


def test_a_tree_that_the_grammar_does_not_derive_is_named_or_left_out():
    trees = treebank()
    grammar, _ = induce(trees[:4], markov=1)
    wrong = Tree.parse("(S (VP (VBZ sees)) (VP (VBZ sees)))")
    with pytest.raises(DataError, match=r"^Example 1: .*no rule S -> VP VP.*underivable=\"skip\""):
        ParseForests(grammar, None, [trees[0], wrong, trees[1]])
    with pytest.warns(RuntimeWarning, match="Example 1: .* It is left out"):
        problem = ParseForests(grammar, None, [trees[0], wrong, trees[1]], underivable="skip", sample_weight=[1, 5, 3])
    np.testing.assert_array_equal(problem.kept, [0, 2])
    np.testing.assert_allclose(problem.weight, [0.5, 1.5])
    assert BCFW().solve(problem, 1.0, tol=1e-2).status is Status.CONVERGED


def test_a_long_sentence_is_refused_or_handled():
    trees = [Tree("S", [Tree("A", "a")] * 2), Tree("S", [Tree("A", "a"), Tree("S", [Tree("A", "a")] * 2)])]
    grammar, _ = induce(trees)
    words = ["a"] * 1000
    with pytest.raises(TooLargeError, match=r"Example 1 has 1000 words: .* could take"):
        ParseForests(grammar, [["a"], words], memory=1 << 20)
    tree = ParseForests(grammar, [words]).predict(np.zeros(grammar.n_rules))[0]
    assert tree.words() == words


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"loss": "hamming"}, OptionError, "no loss 'hamming'"),
        ({"scale": 0.0}, OptionError, "scale=0.0"),
        ({"span_features": ("middle",)}, OptionError, "no span feature 'middle'"),
        ({"underivable": "ignore"}, OptionError, "underivable='ignore'"),
        ({"sample_weight": [1.0]}, DataError, "sample weights have shape"),
        ({"word_class": [0]}, DataError, "word_class has shape"),
    ],
)
def test_options_that_cannot_be(options, error, sentence):
    with pytest.raises(error, match=sentence):
        toy(**options)


def test_data_that_cannot_be():
    trees = treebank()
    grammar, _ = induce(trees, markov=1)
    words = [tree.words() for tree in trees]
    with pytest.raises(DataError, match="7 sentences, but 5 trees"):
        ParseForests(grammar, words, trees[:5])
    with pytest.raises(DataError, match="Example 0: the words of its tree"):
        ParseForests(grammar, words[1:] + words[:1], trees)
    with pytest.raises(DataError, match="Example 0 is a string"):
        ParseForests(grammar, ["the dog"])
    with pytest.raises(DataError, match="Example 1: its truth is a str"):
        ParseForests(grammar, None, [trees[0], "x"])
    with pytest.raises(DataError, match="Example 0: expected a list of words, or tokens from 0"):
        ParseForests(grammar, [[10_000]])
    with pytest.raises(DataError, match="no examples"):
        ParseForests(grammar, [])
    with pytest.raises(OptionError, match="no labels"):
        BCFW().solve(ParseForests(grammar, words))
    with pytest.raises(DataError, match="weights have shape"):
        ParseForests(grammar, words).predict(np.zeros(3))


@pytest.mark.parametrize("solver", [ExcessiveGap(), Extragradient()])
def test_a_run_that_gets_too_cold_for_the_zero_one_loss_keeps_what_it_has(solver):
    problem, _ = toy(loss="zero-one", scale=1.0)
    result = solver.solve(problem, 100.0, tol=1e-9, max_passes=2000)
    assert (result.status, result.certificate) == (Status.STALLED, "exact"), result.summary()
    assert "is too low for the zero-one loss" in result.message
    w = result.weights
    value = w @ w / 200.0 + oracle_of(problem).mean_plane(w, 1).hinges.mean()
    assert result.dual <= value <= result.primal + 1e-9
    assert 0.0 < result.gap < np.inf
