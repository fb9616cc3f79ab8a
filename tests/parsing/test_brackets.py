"""Bracket scores worked out by hand, one rule of EVALB at a time."""

import pytest

from maxmargin.errors import DataError
from maxmargin.parsing.brackets import BracketScores, bracket_scores
from maxmargin.parsing.trees import Tree

GOLD = "(S (NP (DT the) (NN dog)) (, ,) (VP (VBZ sees) (NP (NP (DT a) (NN cat)) (PP (IN on) (NP (NN sofa))))) (. .))"


def score(gold, *predicted, **options):
    guesses = [None if text is None else Tree.parse(text) for text in predicted]
    return bracket_scores([Tree.parse(gold)] * len(guesses), guesses, **options)


def test_the_tree_itself():
    scores = score(GOLD, GOLD)
    # S, NP, VP, NP, NP, PP, NP; the comma and the full stop do not count.
    assert scores == BracketScores(gold=7, predicted=7, matched=7, sentences=1, exact=1, words=7, right_tags=7)
    assert [scores.precision, scores.recall, scores.f1, scores.exact_match, scores.tag_accuracy] == [1] * 5


def test_another_attachment_and_a_wrong_tag():
    flat = (
        "(S (NP (DT the) (NN dog)) (, ,) (VP (VBZ sees) (NP (DT a) (VB cat)) (PP (IN on) (NP (NN sofa)))) (. .))"
    )  # fmt: skip
    scores = score(GOLD, flat)
    # All six predicted brackets are right; the NP over "a cat on sofa" is missing.
    assert scores == BracketScores(gold=7, predicted=6, matched=6, sentences=1, exact=0, words=7, right_tags=6)
    assert scores.precision == 1
    assert scores.recall == 6 / 7
    assert scores.f1 == pytest.approx(2 * 1 * (6 / 7) / (1 + 6 / 7))
    assert scores.tag_accuracy == 6 / 7


def test_labels_count():
    scores = score("(S (NP (NN a)) (VP (VB b)))", "(S (VP (NN a)) (VP (VB b)))")
    assert (scores.gold, scores.predicted, scores.matched) == (3, 3, 2)


def test_a_bracket_matches_as_often_as_it_is_there():
    twice = "(S (NP (NP (NN a))) (VP (VB b)))"
    once = "(S (NP (NN a)) (VP (VB b)))"
    assert score(twice, once).matched == 3
    assert score(twice, twice).matched == 4
    scores = score(once, "(S (NP (NP (NP (NN a)))) (VP (VB b)))")
    assert (scores.gold, scores.predicted, scores.matched, scores.exact) == (3, 5, 3, 0)
    # The order of a chain does not count.
    assert score("(S (X (NP (NN a))) (VB b))", "(S (NP (X (NN a))) (VB b))").exact == 1


def test_punctuation_is_taken_out_of_spans():
    high = "(S (NP (DT the) (NN dog) (, ,)) (VP (VBZ ran)) (. .))"
    low = "(S (NP (DT the) (NN dog)) (, ,) (VP (VBZ ran) (. .)))"
    assert score(low, high) == BracketScores(3, 3, 3, 1, 1, 3, 3)
    assert score(low, high, punctuation=()) == BracketScores(3, 3, 1, 1, 0, 5, 5)
    # The gold tags say what is punctuation, and wrong tags of it do not count.
    assert score(low, high.replace("(, ,)", "(NN ,)")) == BracketScores(3, 3, 3, 1, 1, 3, 3)
    # A node of punctuation alone is no bracket.
    assert score(low, low.replace("(, ,)", "(PRN (, ,))")).predicted == 3


def test_roots_functions_and_equal_labels():
    plain = "(S (NP (NN a)) (PRT (RP b)))"
    assert score(plain, f"(TOP {plain})") == score(plain, f"( {plain})") == BracketScores(3, 3, 3, 1, 1, 2, 2)
    assert score("(S (NP-SBJ-1 (NN a)) (PRT=2 (RP b)))", plain).exact == 1
    adverb = plain.replace("PRT", "ADVP")
    assert score(plain, adverb).exact == 1
    assert score(plain, adverb, equal={}).matched == 2
    assert score("(S (NP (-NONE- *)) (VP (VB b)))", "(S (SBAR (-NONE- *)) (VP (VB b)))").exact == 1


def test_several_sentences_are_counted_together():
    other = "(S (NP (DT the) (NN dog)) (, ,) (X (VBZ sees) (X (DT a) (NN cat) (X (IN on) (NN sofa)))) (. .))"
    scores = score(GOLD, GOLD, other, None)
    # In the second, S and the first NP; nothing in the third.
    assert scores == BracketScores(gold=21, predicted=12, matched=9, sentences=3, exact=1, words=21, right_tags=14)
    assert scores.precision == 9 / 12
    assert scores.recall == 9 / 21
    assert scores.f1 == pytest.approx(18 / 33)
    assert scores.exact_match == 1 / 3
    assert scores.tag_accuracy == 14 / 21


def test_nothing_predicted_and_nothing_to_find():
    scores = score(GOLD, None)
    assert [scores.precision, scores.recall, scores.f1, scores.exact_match, scores.tag_accuracy] == [0] * 5
    scores = score("(NN a)", "(VB a)", None)
    assert (scores.f1, scores.exact_match, scores.tag_accuracy) == (0, 0.5, 0)


def test_bad_input():
    tree = Tree.parse(GOLD)
    with pytest.raises(DataError, match="There are 2 gold trees and 1 predicted ones"):
        bracket_scores([tree, tree], [tree])
    with pytest.raises(DataError, match="There are no trees"):
        bracket_scores([], [])
    with pytest.raises(DataError, match="Sentence 1: the words of the predicted tree are not those of the gold tree"):
        score(GOLD, GOLD, GOLD.replace("cat", "dog"))
