"""Tagging sequences: what knowing the neighbours' tags is worth.

Sentences come from a hidden Markov model: many words fit several tags, but tags follow each other in a typical order.

python examples/chain_tagging.py
"""

import numpy as np
import scipy.sparse as sp

import maxmargin as mm

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
N_WORDS = 200


def sentence(rng, words):
    """The words of a sentence as indicator features, CSR (length, N_WORDS), and its tags."""
    states = [rng.choice(4, p=FIRST)]
    while len(states) < rng.integers(4, 12):
        states.append(rng.choice(4, p=FOLLOW[states[-1]]))
    drawn = [rng.choice(N_WORDS, p=words[k]) for k in states]
    length = len(states)
    return sp.csr_array((np.ones(length), drawn, np.arange(length + 1)), shape=(length, N_WORDS)), TAGS[states]


rng = np.random.default_rng(0)
words = rng.dirichlet(np.full(N_WORDS, 0.2), size=4) * 0.7 + 0.3 / N_WORDS
train, test = ([sentence(rng, words) for _ in range(n)] for n in (300, 1000))
X, y = (list(part) for part in zip(*train, strict=True))
X_test, y_test = (list(part) for part in zip(*test, strict=True))

# Without transitions: every word on its own.
alone = mm.MultiClassSVM(C=30).fit(sp.vstack(X), np.concatenate(y))
print(f"words alone:       {1 - alone.score(sp.vstack(X_test), np.concatenate(y_test)):.3f} of test tags wrong")

chain = mm.ChainSVM(C=30).fit(X, y)
print(f"with transitions:  {1 - chain.score(X_test, y_test):.3f}   {chain.result_.summary()}")

print("weights of transitions (row: tag, column: next tag)")
print("      ", *(f"{tag:>6}" for tag in chain.classes_))
for tag, row in zip(chain.classes_, chain.transition_coef_, strict=True):
    print(f"  {tag:5}", *(f"{weight:6.2f}" for weight in row))
