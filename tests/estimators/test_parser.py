"""ParserSVM against the enumeration of all derivations, and as scikit-learn and model files know it."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from maxmargin.errors import DataError, ModelFileError, OptionError, TooLargeError
from maxmargin.estimators.loading import load
from maxmargin.estimators.parser import ParserSVM
from maxmargin.formats.model_file import read_model, write_model
from maxmargin.parsing.brackets import bracket_scores
from maxmargin.parsing.forests import SPAN_FEATURES
from maxmargin.parsing.grammar import induce, pcfg_weights
from maxmargin.parsing.oracle import ParseOracle
from maxmargin.parsing.trees import Tree
from maxmargin.solvers import BCFW, OneSlack, Status
from parsing.test_chart import enumerate_derivations
from parsing.test_forests import TREEBANK, Enumerated, optimum

TREES = [Tree.parse(line) for line in TREEBANK]
SENTENCES = [tree.words() for tree in TREES]
MORE = [
    ["the", "dog", "sees", "Kim", "with", "the", "cat"],
    ["Kim", "sees", "dog", "with", "cat", "with", "Kim"],
    ["dog", "with", "Kim", "sees", "the", "cat"],
]
#: Adverbs, and a few nouns that end like them.
ENDINGS = [f"(S (NP (NNS cats)) (VP (VBP see) (ADVP (RB {stem}ooly))))" for stem in "abcdefghijklm"]
ENDINGS += [f"(S (NP (NNS cats)) (VP (VBP see) (NP (NNS {stem}ooly))))" for stem in "nop"]
ENDINGS += [f"(S (NP (NNS cats)) (VP (VBP see) (NP (NNS {stem}oors))))" for stem in "abcdefghijklm"]


def small(**options):
    return ParserSVM(**({"C": 10.0, "markov": 1, "rare": 0, "tol": 1e-4} | options))


@pytest.fixture(scope="module")
def fitted():
    return small().fit(SENTENCES, TREES)


def enumerated(model, words):
    """Every tree of a sentence with its score, best first, without charts."""
    g = model.grammar_
    found = enumerate_derivations(g, g.tokens(words).tolist())
    scored = [(sum(model.coef_[rule] for *_, rule, _ in rows), str(g.build(list(rows), words))) for rows in found]
    return sorted(scored, reverse=True)


# ------------------------------------------------------------------------------------------------------- training


def test_the_ways_to_give_trees_are_one(fitted):
    assert fitted.result_.status == "CONVERGED"
    assert fitted.result_.certificate == "exact"
    for model in (small().fit(TREES), small().fit(TREEBANK), small().fit(TREES, TREEBANK)):
        np.testing.assert_array_equal(model.coef_, fitted.coef_)
    assert fitted.n_left_out_ == 0
    assert fitted.coef_ is fitted.result_.weights
    assert "bcfw asks for the fewest charts" in fitted.result_.options["reason"]


@pytest.mark.parametrize("loss", ["brackets", "zero-one"])
def test_the_optimum_is_that_of_the_quadratic_program(loss):
    model = small(loss=loss, tol=1e-7, C=5.0).fit(TREES)
    problem = model._training_problem(model.grammar_, None, TREES, None)
    best = optimum(problem, Enumerated(problem, loss), model.C)
    assert model.result_.primal == pytest.approx(best, abs=1e-6)
    assert model.result_.dual == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("solver", ["one-slack", "n-slack", "subgradient", "frank-wolfe", "bundle", OneSlack(cache=0)])
def test_other_solvers_come_to_the_same(fitted, solver):
    tol = 0.1 if solver in ("subgradient", "frank-wolfe") else 1e-3
    result = small(solver=solver, tol=tol, max_passes=3000).fit(TREES).result_
    assert result.status == "CONVERGED"
    assert result.certificate == "exact"
    assert -1e-9 <= result.primal - fitted.result_.dual <= tol + 1e-4


def test_the_perceptron_certifies_nothing():
    # Where there is a choice, these attach to the verb.
    trees = [TREES[m] for m in (0, 2, 3, 4)]
    model = small(solver="perceptron", max_passes=50).fit(trees)
    assert model.result_.certificate == "none"
    assert model.result_.status == "STALLED"
    names = dict(model.top_rules(1000))
    assert names["VP|<VBZ> -> NP PP"] > names["NP -> NP PP"]
    assert model.score(trees) == 1.0


def test_the_logarithmic_objective():
    """At the optimum the regulariser's pull is that of the likelihood, which is summed over all trees here."""
    model = small(objective="log", C=3.0, tol=1e-9).fit(TREES)
    assert model.result_.status == "CONVERGED"
    problem = model._training_problem(model.grammar_, None, TREES, None)
    everything, w = Enumerated(problem), model.coef_
    value, gradient = 0.0, np.zeros_like(w)
    for phi, truth in zip(everything.phi, everything.truth, strict=True):
        scores = phi @ w
        p = np.exp(scores - scores.max())
        value += np.log(p.sum()) + scores.max() - scores[truth]
        gradient += p / p.sum() @ phi - phi[truth]
    n = len(TREES)
    assert model.result_.primal == pytest.approx(w @ w / 6.0 + value / n, abs=1e-9)
    np.testing.assert_allclose(w / 3.0, -gradient / n, atol=1e-3)
    assert np.abs(w).max() > 0.1


def test_span_features_are_learned():
    model = small(span_features=SPAN_FEATURES).fit(TREES)
    names = model.feature_names()
    assert len(names) == len(model.coef_) > model.grammar_.n_rules
    assert np.abs(model.coef_[model.grammar_.n_rules :]).max() > 0.0
    assert any(" length " in name for name in names)
    assert model.score(TREES) >= 0.99


def test_rules_have_names(fitted):
    names, top = fitted.feature_names(), fitted.top_rules(3)
    assert names == fitted.grammar_.rule_names()
    strongest = sorted(np.abs(fitted.coef_), reverse=True)[:3]
    assert [abs(weight) for _, weight in top] == strongest
    assert all(fitted.coef_[names.index(name)] == weight for name, weight in top)
    assert fitted.top_rules(0) == []


def test_sample_weights():
    weight = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 1.0, 0.0])
    weighted = small(tol=1e-7).fit(TREES, sample_weight=weight).result_
    # The grammar, which is of all trees, is the same; repeated and left out are the sentences.
    model = small(tol=1e-7).fit(TREES)
    repeated = [tree for tree, times in zip(TREES, weight.astype(int), strict=True) for _ in range(times)]
    result = BCFW().solve(model._training_problem(model.grammar_, None, repeated, None), C=10.0, tol=1e-7)
    assert weighted.primal == pytest.approx(result.primal, abs=1e-6)
    assert weighted.primal != pytest.approx(model.result_.primal, abs=1e-3)


def test_an_oracle_that_forgets_what_it_found_is_named(monkeypatch):
    planes, calls = ParseOracle.planes, itertools.count()

    def forgetful(self, w, examples):
        psi, ell = planes(self, w, examples)
        return (psi, ell) if next(calls) < 6 else (0.0 * psi, 0.0 * ell)

    monkeypatch.setattr(ParseOracle, "planes", forgetful)
    with pytest.raises(
        DataError, match=r"Example \d: the oracle cky returned an output .* it must return the largest.$"
    ):
        small(tol=0.0).fit(TREES)


def test_the_bits_do_not_depend_on_threads():
    one, two = (small(n_jobs=n, tol=0.0, max_passes=3).fit(TREES * 10) for n in (1, 2))
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert one.predict(MORE * 10) == two.predict(MORE * 10)


def test_warm_start_and_checkpoint(fitted, tmp_path):
    model = small(warm_start=True).fit(TREES)
    first = model.result_.n_oracle_calls
    again = model.set_params(C=11.0).fit(TREES).result_
    cold = small(C=11.0).fit(TREES).result_
    assert abs(again.primal - cold.primal) <= 2e-4
    assert again.n_oracle_calls < first
    # Another objective or other trees begin afresh.
    model.fit(TREES[:4])
    assert model.result_.status == "CONVERGED"
    path = tmp_path / "state.mm"
    small(checkpoint=path, max_passes=2, tol=0.0).fit(TREES)
    resumed = small(checkpoint=path, max_passes=6, tol=0.0).fit(TREES).result_
    straight = small(max_passes=6, tol=0.0).fit(TREES).result_
    np.testing.assert_array_equal(resumed.weights, straight.weights)


# ------------------------------------------------------------------------------------------------------- prediction


def test_predictions_are_the_best_of_all_trees(fitted):
    for words in (*SENTENCES, *MORE):
        everything = enumerated(fitted, words)
        assert len(everything) > 0
        trees, scores = fitted.predict_top_k([words], 4)
        np.testing.assert_allclose(scores[0], [score for score, _ in everything[:4]], atol=1e-9)
        known = {tree: score for score, tree in everything}
        assert len({str(tree) for tree in trees[0]}) == len(trees[0]) == min(4, len(everything))
        for tree, score in zip(trees[0], scores[0], strict=True):
            assert known[str(tree)] == pytest.approx(score, abs=1e-9)
    assert max(len(enumerated(fitted, words)) for words in MORE) > 1
    np.testing.assert_allclose(fitted.decision_function(MORE), [enumerated(fitted, words)[0][0] for words in MORE])
    for words, tree in zip(MORE, fitted.predict(MORE), strict=True):
        everything = enumerated(fitted, words)
        assert dict(map(reversed, everything))[str(tree)] == pytest.approx(everything[0][0], abs=1e-9)


def test_scores_are_those_of_the_predicted_trees(fitted):
    predicted = fitted.predict(SENTENCES)
    scores = bracket_scores(TREES, predicted)
    assert fitted.evaluate(SENTENCES, TREES) == fitted.evaluate(TREES) == scores
    assert fitted.score(SENTENCES, TREEBANK) == fitted.score(TREEBANK) == scores.f1 > 0.9
    assert fitted.score(SENTENCES[::-1], [Tree("X", [tree]) for tree in TREES[::-1]]) < scores.f1


def test_the_baseline_is_the_probabilistic_grammar(fitted):
    base = fitted.baseline()
    grammar, counts = induce(TREES, markov=1, min_word=1, rare=0)
    np.testing.assert_array_equal(base.coef_, pcfg_weights(grammar, counts))
    for words in MORE:
        # By hand: probabilities of rules, multiplied.
        best = enumerated(base, words)[0]
        assert base.decision_function([words])[0] == pytest.approx(best[0])
        assert best[0] < 0.0
    spans = small(span_features=("length",), max_passes=1, tol=10.0).fit(TREES).baseline()
    np.testing.assert_array_equal(spans.coef_[: grammar.n_rules], base.coef_)
    assert not spans.coef_[grammar.n_rules :].any()
    with pytest.raises(OptionError, match="A baseline cannot be saved"):
        base.save("nowhere.mm")


def test_words_never_seen():
    """Words seen once are unknown, and so teach what to do with words never seen."""
    model = ParserSVM(C=10, markov=1, rare=1).fit([*TREES, Tree.parse("(S (NP (NNP Lee)) (VP (VBZ waves)))")])
    assert "Lee" not in model.grammar_.words
    assert model.grammar_.word_classes == ["UNK"]
    words = ["Zebedee", "sees", "the", "cat"]
    expected = "(S (NP (NNP Zebedee)) (VP (VBZ sees) (NP (DT the) (NN cat))))"
    assert list(map(str, model.predict([words]))) == [expected]
    with pytest.warns(UserWarning, match="1 of 1 sentences have no parse"):
        assert small().fit(TREES).predict([words]) == [None]


def test_classes_of_unknown_words_have_weights():
    """Both tags are possible for a word never seen; more trees say that its ending is that of an adverb."""
    model = ParserSVM(C=1000).fit(ENDINGS)
    assert [tree.tags()[2] for tree in model.predict([["cats", "see", "zooly"], ["cats", "see", "zoors"]])] == [
        "RB",
        "NNS",
    ]
    names = dict(model.top_rules(1000))
    assert names["RB -> UNK/a/-oly"] + names["ADVP => RB"] > names["NNS -> UNK/a/-oly"] + names["NP => NNS"]
    assert names["RB -> UNK/a/-oly"] > 0.0


def test_no_parse_is_a_result(fitted):
    with pytest.warns(UserWarning, match="2 of 3 sentences have no parse under the grammar"):
        found = fitted.predict([["with", "with"], SENTENCES[0], []])
    assert [tree is None for tree in found] == [True, False, True]
    assert fitted.decision_function([["with", "with"]])[0] == -np.inf
    assert fitted.predict_top_k([["with", "with"]], 3)[0] == [[]]
    assert fitted.evaluate([["Kim"]], ["(NP (NNP Kim))"]).f1 == 0.0


def test_a_long_sentence_is_refused_with_the_memory_it_would_take(fitted):
    words = ["Kim", "sees"] * 500
    tight = clone(fitted).set_params(memory=10**6).fit(TREES)
    symbols = len(fitted.grammar_.symbols)
    with pytest.raises(
        TooLargeError, match=rf"Example 1 has 1000 words: .* with {symbols} symbols could take 0\.\d GB"
    ):
        tight.predict([SENTENCES[0], words])
    with pytest.warns(UserWarning, match="1 of 1"):
        assert fitted.predict([words[:200]]) == [None]


# ------------------------------------------------------------------------------------------------------- bad input


def test_trees_that_the_rules_do_not_derive():
    odd = Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ sees)) (X (NNP Kim)))")
    with pytest.raises(DataError, match=r'Example 7: .* no rule S -> NP S\|<NP> .* unparsable="skip" to leave'):
        small(min_count=2).fit([*TREES, odd, *TREES])
    with pytest.warns(RuntimeWarning, match=r"Example 7: .* It is left out"):
        model = small(min_count=2, unparsable="skip").fit([*TREES, odd, *TREES])
    assert model.n_left_out_ == 1
    assert model.score(TREES) == small().fit([*TREES, *TREES]).score(TREES)
    with pytest.raises(DataError, match="No rules are left that derive a sentence"):
        small(min_count=100).fit(TREES)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((["(S (NP (NNP Kim))"],), "Tree 0: .* never closed"),
        ((["(S (NP (NNP Kim)))", "(S ())"],), "Tree 1: .* is empty"),
        ((["(S (NP (NNP Kim))))"],), "Tree 0: .* closes nothing"),
        (([""],), "Tree 0: The text has 0 trees"),
        (([],), "There are no trees"),
        (("(S (NNP Kim))",), "A str was given where a list of trees is expected"),
        (([3],), "Tree 0 is a int; expected a Tree"),
        ((["Kim sees"], TREES[:1]), "Sentence 0 is a str; expected a list of words"),
        (([[1, 2]], TREES[:1]), "Sentence 0 has 1 where a word should be"),
        ((SENTENCES[:2], TREES[:1]), "2 sentences, but 1 trees"),
        ((SENTENCES[1:2], TREES[:1]), "Example 0: the words of its tree are not those of the sentence"),
        (([["Kim"]], [Tree("", [Tree("NP", [Tree("NNP", "Kim")])])]), "Tree 0: a bracket has no label"),
    ],
)
def test_data_that_cannot_be(arguments, sentence):
    with pytest.raises(DataError, match=sentence):
        small().fit(*arguments)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"C": 0}, "C=0 is not possible"),
        ({"markov": -1}, "markov=-1 is not possible"),
        ({"parent": 1}, "parent=1 is not possible"),
        ({"min_count": 0}, "min_count=0 is not possible"),
        ({"rare": -1}, "rare=-1 is not possible"),
        ({"memory": 0}, "memory=0 is not possible"),
        ({"loss": "hamming"}, "loss='hamming' is not known"),
        ({"unparsable": "go on"}, "unparsable='go on' is not known"),
        ({"span_features": "first"}, "span_features='first' is not possible"),
        ({"span_features": ("middle",)}, "span_features=.* is not possible"),
        ({"solver": "newton"}, "solver='newton' is not known"),
        ({"solver": "soft-bcfw"}, "needs the score tables of factor graphs"),
        ({"objective": "log", "solver": "bcfw"}, "not for objective='log'"),
    ],
)
def test_options_that_cannot_be(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        small(**options).fit(TREES)


def test_slack_rescaling():
    model = small(solver=OneSlack(rescaling="slack")).fit(TREES)
    assert model.result_.certificate == "exact"
    assert model.result_.options["rescaling"] == "slack"
    assert model.result_.status is Status.CONVERGED


# ------------------------------------------------------------------------------------------------------- scikit-learn, files


def test_as_an_estimator(fitted):
    assert clone(fitted).get_params() == fitted.get_params()
    assert not fitted.__sklearn_tags__().input_tags.two_d_array
    with pytest.raises(NotFittedError):
        small().predict(SENTENCES)
    scores = cross_val_score(small(), SENTENCES, TREES, cv=2)
    assert scores.shape == (2,)
    # By hand, the first fold.
    half = len(TREES) - len(TREES) // 2
    by_hand = small().fit(SENTENCES[half:], TREES[half:]).score(SENTENCES[:half], TREES[:half])
    assert scores[0] == by_hand
    search = GridSearchCV(small(), {"C": [0.001, 10.0]}, cv=2).fit(SENTENCES, TREES)
    assert search.best_params_["C"] in (0.001, 10.0)


@pytest.mark.parametrize(
    "options", [{}, {"span_features": ("length", "first"), "parent": True}, {"rare": 1}, {"solver": OneSlack(cache=3)}]
)
def test_a_loaded_parser_is_the_same(tmp_path, options):
    model = small(**options).fit(TREES)
    model.save(tmp_path / "a.mm")
    loaded = load(tmp_path / "a.mm")
    assert type(loaded) is ParserSVM
    assert loaded.coef_.tobytes() == model.coef_.tobytes()
    for one, two in zip(
        itertools.chain(*loaded.predict_top_k(MORE, 3)), itertools.chain(*model.predict_top_k(MORE, 3)), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    assert loaded.score(TREES) == model.score(TREES)
    np.testing.assert_array_equal(loaded.baseline().coef_, model.baseline().coef_)
    assert loaded.feature_names() == model.feature_names()
    assert (loaded.result_.primal, loaded.result_.status) == (model.result_.primal, model.result_.status)
    same = {name: value for name, value in model.get_params().items() if name not in ("solver", "span_features")}
    assert {name: loaded.get_params()[name] for name in same} == same
    assert tuple(loaded.span_features) == tuple(model.span_features)
    loaded.save(tmp_path / "b.mm")
    assert (tmp_path / "a.mm").read_bytes() == (tmp_path / "b.mm").read_bytes()


def test_files_that_do_not_fit_together(fitted, tmp_path):
    fitted.save(tmp_path / "a.mm")

    def altered(change):
        header, arrays = read_model(tmp_path / "a.mm")
        for key in ("format", "format_version", "arrays"):
            header.pop(key)
        change(header, arrays)
        write_model(tmp_path / "b.mm", header, arrays)
        return tmp_path / "b.mm"

    for change, sentence in (
        (
            lambda h, a: a.update(weights=fitted.result_.weights[:-1]),
            r"its weights have shape \(\d+,\); its grammar needs",
        ),
        (lambda h, a: a.update(rule_counts=a["rule_counts"] - 100), "its counts of rules are not"),
        (lambda h, a: a.update(word_class=a["word_class"] + 100), "its classes of tokens are not"),
        (lambda h, a: a.pop("grammar_binary"), "A saved grammar lacks 'grammar_binary'"),
        (lambda h, a: a.update(grammar_binary=a["grammar_binary"] + 1000), "binary has 1.* in row 0"),
        (lambda h, a: h["grammar"].pop("symbols"), "A saved grammar lacks 'symbols'"),
        (lambda h, a: h["parameters"].update(markov=-1), "markov=-1 is not possible"),
        (lambda h, a: h["parameters"].update(speed=9), "the parameter 'speed'"),
        (lambda h, a: h.pop("grammar"), "lacks what a model needs"),
    ):
        with pytest.raises(ModelFileError, match=sentence):
            load(altered(change))
