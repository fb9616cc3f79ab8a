"""
Risk against coverage
=====================

Predictions of which the model is unsure can be left to someone else. The curve shows the share of mistakes among
those that are kept; dotted, the share among all. The probability of the predicted class, at a fitted temperature,
orders the doubts of a margin as well as the difference of its two best scores.
"""

from sklearn.datasets import load_digits

import maxmargin as mm

X, y = load_digits(return_X_y=True)
X = X / 16
margin = mm.MultiClassSVM(C=300).fit(X[:600], y[:600])
likely = mm.MultiClassSVM(C=300, objective="log").fit(X[:600], y[:600])
curves = {
    "margin, by probability": (margin, margin.predict_proba(X[600:]).max(axis=1)),
    "margin, by scores": (margin, margin.predict_margin(X[600:])),
    "likelihood": (likely, likely.predict_proba(X[600:]).max(axis=1)),
}
ax = None
for name, (model, sure) in curves.items():
    wrong = model.predict(X[600:]) != y[600:]
    ax = mm.plot_risk_coverage(wrong, sure, ax, label=name)
    print(f"{name}: {wrong.mean():.3f} of all are wrong; {mm.risk_coverage(wrong, sure).area:.4f} on average")
