"""Tagging sentences: what endings, neighbouring words and the order of tags are worth.

Sentences come from a hidden Markov model with made-up words. Many words of the test sentences were never seen in training; an
ending is typical of a tag, not a proof of it.

python examples/chain_tagging.py
"""

import numpy as np

import maxmargin as mm
from maxmargin.features import TextFeatures

TAGS = np.array(["DET", "ADJ", "NOUN", "VERB"])
FIRST = [0.7, 0.2, 0.1, 0.0]
FOLLOW = np.array(
    [
        [0.0, 0.4, 0.6, 0.0],  # after a determiner: an adjective or a noun
        [0.0, 0.2, 0.8, 0.0],
        [0.1, 0.0, 0.2, 0.7],
        [0.6, 0.2, 0.2, 0.0],
    ]
)
ENDINGS = [["e"], ["al", "ous", "ed", "y"], ["ion", "er", "y", "s"], ["ed", "ing", "s", "er"]]
STEMS = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in "bdgklmnprst"]


def sentence(rng):
    """The words of a sentence and its tags."""
    states = [rng.choice(4, p=FIRST)]
    while len(states) < rng.integers(4, 12):
        states.append(rng.choice(4, p=FOLLOW[states[-1]]))
    words = []
    for k in states:
        # There are few determiners, and any number of other words.
        stem = "th" if k == 0 else STEMS[int(len(STEMS) * rng.random() ** 2)]
        words.append(stem + rng.choice(ENDINGS[k]))
    return words, TAGS[states].tolist()


rng = np.random.default_rng(0)
X, y = map(list, zip(*(sentence(rng) for _ in range(150)), strict=True))
X_test, y_test = map(list, zip(*(sentence(rng) for _ in range(1000)), strict=True))
known = {word for words in X for word in words}
print(f"{np.mean([word not in known for words in X_test for word in words]):.0%} of the test words were never seen")

alone = TextFeatures(window=0, prefixes=0, suffixes=0, shape=False)
endings = TextFeatures(window=0, prefixes=0, suffixes=3, shape=False)
neighbours = TextFeatures(window=1, prefixes=0, suffixes=3, shape=False)
for name, options in (
    ("words alone", {"features": alone, "order": 0, "boundary": False}),
    ("and endings", {"features": endings, "order": 0, "boundary": False}),
    ("and neighbours", {"features": neighbours, "order": 0, "boundary": False}),
    ("and transitions", {"features": neighbours}),
):
    model = mm.ChainSVM(C=30, **options).fit(X, y)
    print(f"{name:16} {1 - model.score(X_test, y_test):.3f} of test tags wrong   {model.result_.summary()}")

print("what speaks for a tag")
for tag in model.classes_:
    print(f"  {tag:5}", ", ".join(f"{feature} {weight:.2f}" for feature, weight in model.top_features(tag, 4)))

print("weights of transitions (row: tag, column: next tag)")
print("      ", *(f"{tag:>6}" for tag in model.classes_))
for tag, row in zip(model.classes_, model.transition_coef_, strict=True):
    print(f"  {tag:5}", *(f"{weight:6.2f}" for weight in row))
