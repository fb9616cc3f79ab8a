"""``maxmargin svm-multiclass learn | classify``: the commands ``svm_multiclass_learn`` and ``svm_multiclass_classify``.

A prediction is a line ``class score_1 ... score_K``.
"""

from __future__ import annotations

import argparse
from typing import Any

from maxmargin.cli.svm_struct import commands
from maxmargin.cli.svm_struct.options import Options, check_choice, estimator_options
from maxmargin.errors import DataError

SUMMARY = "SVM-multiclass: svm_multiclass_learn and svm_multiclass_classify"
DESCRIPTION = """\
Train and predict as svm_multiclass_learn and svm_multiclass_classify do, with their options and files: data in
SVM-light's text with classes from 1, predictions as lines 'class score_1 ... score_K'. The same problem is solved: a
wrong class costs 100 (-l 0) or the squared difference of the classes (-l 1), C is that of 1/2 |w|^2 + C mean slack,
and training stops when no constraint is violated by more than -e. The model file is one of maxmargin."""


class _MultiClass:
    name = "svm-multiclass"
    task = "multi-class"
    learn_options: dict[str, tuple[type, Any, str]] = {  # noqa: RUF012
        "-l": (int, 0, "loss: 0 zero-one, of 100; 1 squared difference of the classes")
    }
    classify_options: dict[str, tuple[type, Any, str]] = {}  # noqa: RUF012

    def read(self, path: str, model: Any = None) -> tuple[Any, Any, int]:
        """Rows of features, and the class of each; None where it is 0, which says that it is not known."""
        from maxmargin.formats import read_svmlight

        if model is None:
            rows = read_svmlight(path, zero_based=False)
        else:
            rows = read_svmlight(path, model.n_features_in_, zero_based=False)
        labels = rows.classes().y.tolist()
        if model is not None:
            labels = [None if label == 0 else label for label in labels]
        elif None in labels:
            raise DataError(f"{path}, line {rows.line_numbers[labels.index(None)]}: the class is missing.")
        commands.whole_numbers_from_1(path, labels, "class")
        return rows.X, labels, len(labels)

    def make(self, command: str, options: Options, targets: Any) -> Any:
        """A `MultiClassSVM` with the costs of SVM-multiclass."""
        import numpy as np

        from maxmargin.estimators import MultiClassSVM

        check_choice(command, options, "-l", (0, 1))
        classes = np.array(sorted(set(targets)))
        commands.say_missing(targets, "class")
        differences = classes[:, None] - classes[None, :]
        costs = 100.0 * (differences != 0) if options["-l"] == 0 else differences.astype(np.float64) ** 2
        return MultiClassSVM(loss=costs, **estimator_options(command, options))

    def classify(self, model: Any, inputs: Any) -> tuple[Any, str]:
        """The classes, and a line with the scores of classes 1 to K for each."""
        import numpy as np

        scores = model._scores(inputs)
        predicted = model.classes_[scores.argmax(axis=1)]
        # A class that no training example had is never the best.
        table = np.full((len(predicted), int(model.classes_.max())), -np.inf)
        table[:, model.classes_ - 1] = scores
        lines = (
            f"{one} {' '.join(f'{value:f}' for value in row)}\n" for one, row in zip(predicted, table, strict=True)
        )
        return predicted, "".join(lines)

    def figures(self, model: Any, targets: Any, predicted: Any) -> list[str]:
        """Average loss and zero/one-error, in the words of SVM-multiclass."""
        import numpy as np

        known = [k for k, label in enumerate(targets) if label is not None]
        if not known:
            return []
        truth, guess = np.array([targets[k] for k in known]), predicted[known]
        zero_one = model.loss[0, 1] == 100 if len(model.classes_) > 1 else True
        losses = 100.0 * (truth != guess) if zero_one else (truth - guess).astype(np.float64) ** 2
        right = int((truth == guess).sum())
        return [f"Average loss on test set: {losses.mean():.4f}", zero_one_error(right, len(truth))]


def zero_one_error(right: int, total: int) -> str:
    """The last line that SVM-struct prints."""
    wrong = total - right
    return f"Zero/one-error on test set: {100 * wrong / total:.2f}% ({right} correct, {wrong} incorrect, {total} total)"


PROGRAM = _MultiClass()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    commands.add_arguments(parser, PROGRAM)


def run(args: argparse.Namespace) -> int:
    """Learn or classify."""
    return commands.run(args, PROGRAM)
