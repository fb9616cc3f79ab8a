"""How good parses are: labelled brackets, as EVALB counts them with its parameters COLLINS.prm.

Conventions
-----------
A bracket is (begin, end, label) of a node that is not a tag. Before brackets are compared,

- words that are punctuation or traces by the *gold* tags are taken out of both trees, with nodes that hold nothing
  else (EVALB goes by each tree's own tags, and gives up on a sentence where that leaves different words);
- functions are cut off labels (NP-SBJ is an NP), PRT counts as ADVP, and TOP and its like are no brackets.

A tree may have the same bracket several times; each matches once. Precision is the share of predicted brackets that
match, recall that of gold brackets, over all sentences together, and F1 is their harmonic mean; the share of nothing
is 0. A sentence matches exactly if all brackets of both trees match; tags do not count. Tag accuracy is over the words
that were left in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from maxmargin.errors import DataError
from maxmargin.parsing.treebank import TOP, TRACE, without_functions
from maxmargin.parsing.trees import Tree

PUNCTUATION = frozenset({",", ":", "``", "''", "."})
ROOTS = frozenset({"", TOP, "ROOT", "S1"})
EQUAL = {"PRT": "ADVP"}


@dataclass(frozen=True)
class BracketScores:
    """Counts over a set of sentences, and the scores they make.

    Attributes
    ----------
    gold, predicted, matched : int
        Brackets of the gold trees, of the predicted ones, and those that match.
    sentences, exact : int
        Sentences, and those in which all brackets match.
    words, right_tags : int
        Words that are not taken out, and those with the right tag.
    """

    gold: int
    predicted: int
    matched: int
    sentences: int
    exact: int
    words: int
    right_tags: int

    @property
    def precision(self) -> float:
        """Share of the predicted brackets that are right."""
        return _share(self.matched, self.predicted)

    @property
    def recall(self) -> float:
        """Share of the gold brackets that were found."""
        return _share(self.matched, self.gold)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return _share(2 * self.matched, self.gold + self.predicted)

    @property
    def exact_match(self) -> float:
        """Share of the sentences whose brackets are all right."""
        return _share(self.exact, self.sentences)

    @property
    def tag_accuracy(self) -> float:
        """Share of the words with the right tag."""
        return _share(self.right_tags, self.words)


def bracket_scores(
    gold: Sequence[Tree],
    predicted: Sequence[Tree | None],
    punctuation: Collection[str] = PUNCTUATION,
    equal: Mapping[str, str] = EQUAL,
) -> BracketScores:
    """Compare predicted trees with gold trees of the same sentences.

    Parameters
    ----------
    gold : list of Tree
    predicted : list of Tree or None
        None for a sentence without a parse: it has no brackets, and no tag of it is right.
    punctuation : set of str
        The tags whose words do not count; empty to count all.
    equal : dict of str to str
        Labels that count as other labels.

    Returns
    -------
    BracketScores
    """
    if len(gold) != len(predicted):
        raise DataError(f"There are {len(gold)} gold trees and {len(predicted)} predicted ones; expected as many.")
    if len(gold) == 0:
        raise DataError("There are no trees to compare.")
    totals: Counter[str] = Counter(sentences=len(gold))
    for m, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        tags = truth.tags()
        counted = [tag not in punctuation and tag != TRACE for tag in tags]
        expected = _brackets(truth, counted, equal)
        found: Counter[tuple[int, int, str]] = Counter()
        totals["words"] += sum(counted)
        if guess is not None:
            if guess.words() != truth.words():
                raise DataError(f"Sentence {m}: the words of the predicted tree are not those of the gold tree.")
            found = _brackets(guess, counted, equal)
            totals["right_tags"] += sum(
                counts and tag == other for tag, other, counts in zip(tags, guess.tags(), counted, strict=True)
            )
        totals["gold"] += expected.total()
        totals["predicted"] += found.total()
        totals["matched"] += (expected & found).total()
        totals["exact"] += guess is not None and expected == found
    return BracketScores(**{name: int(totals[name]) for name in BracketScores.__dataclass_fields__})


def _brackets(tree: Tree, counted: Sequence[bool], equal: Mapping[str, str]) -> Counter[tuple[int, int, str]]:
    # Words that count before each position: where a span begins and ends without the others.
    before = [0]
    for counts in counted:
        before.append(before[-1] + counts)
    found: Counter[tuple[int, int, str]] = Counter()
    for begin, end, label in without_functions(tree).spans():
        if before[begin] < before[end] and label not in ROOTS:
            found[before[begin], before[end], equal.get(label, label)] += 1
    return found


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
