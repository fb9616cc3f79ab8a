"""Learning to align two sequences: a problem of one's own, written in Python.

A sequence and its relative, with letters changed, lost and added. Which letters often turn into which, and what a gap costs, is
learned from pairs whose true alignment is known (Joachims, Finley and Yu 2009, section 5.2, with synthetic data).

python examples/python_problem.py
"""

import numpy as np

from maxmargin.estimators.structured import StructuredSVM

LETTERS = 8
#: Letters turn into others of their group, which a plain edit distance does not know: 0-3 and 4-7.
GROUP = np.arange(LETTERS) // 4


class Alignment:
    """x is a pair of sequences; y is the set of pairs of positions that are aligned, in order.

    score(x, y) = sum of w[a, b] over aligned letters (a, b)  +  w[-1] times the number of letters that are left alone
    """

    def joint_features(self, x, y):
        s, t = x
        pairs = np.zeros((LETTERS, LETTERS))
        for i, j in y:
            pairs[s[i], t[j]] += 1
        return np.append(pairs, len(s) + len(t) - 2 * len(y))

    def loss(self, y, y_hat):
        return 1 - len(set(y) & set(y_hat)) / len(y)

    def most_violated(self, x, y, w):
        # The loss is 1 less a share for every true pair, so it adds to the scores of pairs.
        return best_alignment(x, w, dict.fromkeys(y, -1 / len(y)))

    def predict(self, x, w):
        return best_alignment(x, w, {})


def best_alignment(x, w, extra):
    """The alignment of largest score, by dynamic programming; `extra` is added to the scores of some pairs."""
    s, t = x
    gap, pair = w[-1], np.reshape(w[:-1], (LETTERS, LETTERS))[np.ix_(s, t)].tolist()
    for (i, j), more in extra.items():
        pair[i][j] += more
    best = [[gap * (i + j) for j in range(len(t) + 1)] for i in range(len(s) + 1)]
    for i in range(len(s)):
        for j in range(len(t)):
            best[i + 1][j + 1] = max(best[i][j] + pair[i][j], best[i][j + 1] + gap, best[i + 1][j] + gap)
    i, j, found = len(s), len(t), []
    while i and j:
        if best[i][j] == best[i - 1][j - 1] + pair[i - 1][j - 1]:
            i, j = i - 1, j - 1
            found.append((i, j))
        elif best[i][j] == best[i - 1][j] + gap:
            i -= 1
        else:
            j -= 1
    return tuple(reversed(found))


def relatives(rng):
    """A sequence, a relative of it, and the positions that belong together."""
    s, t, y = rng.integers(0, LETTERS, rng.integers(10, 16)), [], []
    for i, letter in enumerate(s):
        while rng.random() < 0.2:
            t.append(rng.integers(LETTERS))
        if rng.random() < 0.8 or (i == 0 and not y):
            y.append((i, len(t)))
            group = np.flatnonzero(GROUP[letter] == GROUP)
            t.append(letter if rng.random() < 0.3 else rng.choice(group))
    return (s, np.array(t)), tuple(y)


rng = np.random.default_rng(0)
train, test = ([relatives(rng) for _ in range(n)] for n in (60, 300))
(X, Y), (X_test, Y_test) = (tuple(map(list, zip(*part, strict=True))) for part in (train, test))

model = Alignment()
edit_distance = np.append(2 * np.eye(LETTERS) - 1, -1.0)
before = np.mean([model.loss(y, model.predict(x, edit_distance)) for x, y in zip(X_test, Y_test, strict=True)])
print(f"edit distance:   {before:.3f} of the true pairs missed")

svm = StructuredSVM(model, C=30, tol=0.01).fit(X, Y)
print(f"learned scores:  {1 - svm.score(X_test, Y_test):.3f}   {svm.result_.summary()}")

pairs = svm.coef_[:-1].reshape(LETTERS, LETTERS)
same, other = GROUP[:, None] == GROUP, GROUP[:, None] != GROUP
print(f"mean score of a pair of one group {pairs[same].mean():.2f}, of two groups {pairs[other].mean():.2f}", end=", ")
print(f"of a letter left alone {svm.coef_[-1]:.2f}")
