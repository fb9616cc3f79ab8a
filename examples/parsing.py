"""Parsing: which phrase does "with the telescope" belong to?

A probabilistic grammar counts rules, each for itself. A margin looks at whole trees: what counts is that the true one scores higher
than all others of the same sentence. The trees below are made up: instruments belong to the verb, places to the object. No rule
sees both the verb's phrase and the last noun, so rules can only learn which is more frequent; a feature of spans, the last word,
tells the two apart.

python examples/parsing.py
"""

import pathlib
import tempfile

import numpy as np

from maxmargin.estimators.parser import ParserSVM
from maxmargin.parsing.forests import SPAN_FEATURES
from maxmargin.parsing.trees import Tree
from maxmargin.reporting.tree_plot import tree_svg

NOUNS, TOOLS, PLACES = ["man", "girl", "house", "bird"], ["telescope", "camera"], ["garden", "cage"]
VERBS = ["sees", "watches", "likes"]


def phrase(rng, nouns):
    adjective = f"(JJ {rng.choice(['old', 'small'])}) " if rng.random() < 0.3 else ""
    return f"(NP (DT {rng.choice(['the', 'a'])}) {adjective}(NN {rng.choice(nouns)}))"


def sentence(rng):
    """A subject, a verb, an object, and most of the time a preposition."""
    subject, thing, verb = phrase(rng, NOUNS), phrase(rng, NOUNS), rng.choice(VERBS)
    kind = rng.choice(["none", "tool", "place"], p=[0.2, 0.5, 0.3])
    if kind == "none":
        return f"(S {subject} (VP (VBZ {verb}) {thing}))"
    if kind == "tool":
        return f"(S {subject} (VP (VBZ {verb}) {thing} (PP (IN with) {phrase(rng, TOOLS)})))"
    return f"(S {subject} (VP (VBZ {verb}) (NP {thing} (PP (IN with) {phrase(rng, PLACES)}))))"


rng = np.random.default_rng(0)
train = [Tree.parse(sentence(rng)) for _ in range(150)]
test = [Tree.parse(sentence(rng)) for _ in range(300)]

for name, options in (("rules", {}), ("and spans", {"span_features": SPAN_FEATURES})):
    model = ParserSVM(C=100, **options).fit(train)
    for kind, parser in (("counted", model.baseline()), ("trained", model)):
        scores = parser.evaluate(test)
        print(f"{name:10} {kind}   bracket F1 {scores.f1:.3f}   exact {scores.exact_match:.3f}", end="   ")
        print(model.result_.summary() if parser is model else "")

words = ["the", "old", "girl", "watches", "a", "bird", "with", "the", "camera"]
trees, scores = model.predict_top_k([words], 2)
print("the two best trees of:", *words)
for tree, score in zip(trees[0], scores[0], strict=True):
    print(f"  {score:6.2f}  {tree}")
print("the strongest weights")
for name, weight in model.top_rules(5):
    print(f"  {weight:6.2f}  {name}")

path = pathlib.Path(tempfile.gettempdir()) / "tree.svg"
path.write_text(tree_svg(trees[0][0]))
print(f"a picture of the best tree: {path}")
