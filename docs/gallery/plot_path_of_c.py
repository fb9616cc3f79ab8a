"""
A path of C
===========

`C="auto"` trains for one value of C after another, each from where the one before ended, and takes the one of least
loss on examples that were held out. Bars are standard errors over five folds.
"""

from sklearn.datasets import load_wine

import maxmargin as mm

X, y = load_wine(return_X_y=True)
model = mm.MultiClassSVM(C=[0.1, 0.3, 1, 3, 10, 30, 100, 300], cv=5).fit(X, y)
print(model.result_.summary())
mm.plot_path(model)
