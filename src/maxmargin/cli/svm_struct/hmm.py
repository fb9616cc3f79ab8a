"""``maxmargin svm-hmm learn | classify``: the commands ``svm_hmm_learn`` and ``svm_hmm_classify``.

A prediction is one tag a line, for all positions of all sequences after each other.
"""

from __future__ import annotations

import argparse
from itertools import chain
from typing import Any

from maxmargin.cli.exits import say
from maxmargin.cli.svm_struct import commands
from maxmargin.cli.svm_struct.multiclass import zero_one_error
from maxmargin.cli.svm_struct.options import Options, check_choice, estimator_options
from maxmargin.errors import OptionError

SUMMARY = "SVM-hmm: svm_hmm_learn and svm_hmm_classify"
DESCRIPTION = """\
Train and predict as svm_hmm_learn and svm_hmm_classify do, with their options and files: data as lines
'tag qid:sequence feature:value ...' with tags from 1, predictions as one tag a line. The same problem is solved: the
loss is the number of wrong tags, there are weights for transitions (--t) and emissions (--e) and no others, C is that
of 1/2 |w|^2 + C mean slack, and training stops when no constraint is violated by more than -e. The model file is one of
maxmargin."""
_BEAM = (int, 0, "width of the beam; ignored, since the exact Viterbi algorithm is used")


class _Hmm:
    name = "svm-hmm"
    task = "chain"
    learn_options: dict[str, tuple[type, Any, str]] = {  # noqa: RUF012
        "-e": (float, 0.5, "epsilon: stop when no constraint is violated by more wrong tags of a sequence"),
        "-l": (int, 1, "loss: 1 the number of wrong tags; 0 one for a sequence that is not all right"),
        "--t": (int, 1, "order of the transitions: 0, 1 or 2"),
        "--e": (int, 0, "order of the emissions: 0, 1 or 2, at most --t"),
        "--b": _BEAM,
    }
    classify_options: dict[str, tuple[type, Any, str]] = {"--b": _BEAM}  # noqa: RUF012

    def read(self, path: str, model: Any = None) -> tuple[Any, Any, int]:
        """Sequences, and their tags; None where one is 0 in data to predict, which says that it is not known."""
        from maxmargin.formats import read_svm_hmm

        data = read_svm_hmm(path, None if model is None else model.n_features_in_)
        tags = data.tag_lists()
        if model is not None:
            tags = [[None if tag == 0 else tag for tag in row] for row in tags]
        commands.whole_numbers_from_1(path, list(chain.from_iterable(tags)), "tag")
        return data.sequences(), tags, len(tags)

    def make(self, command: str, options: Options, targets: Any) -> Any:
        """A `ChainSVM` without weights for the ends of sequences, and with the loss of SVM-hmm."""
        from maxmargin.estimators import ChainSVM

        check_choice(command, options, "-l", (0, 1))
        check_choice(command, options, "--t", range(3), ": transitions see two tags before at most")
        check_choice(command, options, "--e", range(3))
        if options["--e"] > options["--t"]:
            raise OptionError(f"{command}: --e is {options['--e']} and --t {options['--t']}; --e must be at most --t.")
        shared = estimator_options(command, options)
        if shared["kernel"] != "linear":
            say(
                "-t: the kernel is that of the features of positions, for each tag; weights of transitions stay linear."
            )
        commands.say_missing(list(chain.from_iterable(targets)), "tag")
        loss = ("zero-one", "count")[options["-l"]]
        return ChainSVM(loss=loss, boundary=False, order=options["--t"], emission_order=options["--e"], **shared)

    def classify(self, model: Any, inputs: Any) -> tuple[Any, str]:
        """The tags, and a line for each."""
        predicted = [row.tolist() for row in model.predict(inputs)]
        return predicted, "".join(f"{tag}\n" for row in predicted for tag in row)

    def figures(self, model: Any, targets: Any, predicted: Any) -> list[str]:
        """Average loss per token and of a sequence, and zero/one-error of sequences, in the words of SVM-hmm."""
        wrong = [
            [one != other for one, other in zip(row, guess, strict=True) if one is not None]
            for row, guess in zip(targets, predicted, strict=True)
        ]
        known = sum(map(len, wrong))
        if known == 0:
            return []
        total, right = sum(map(sum, wrong)), sum(not any(row) for row in wrong)
        return [
            f"Average loss per token: {total / known:.4f}",
            f"Average loss on test set: {total / len(wrong):.4f}",
            zero_one_error(right, len(wrong)),
        ]


PROGRAM = _Hmm()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    commands.add_arguments(parser, PROGRAM)


def run(args: argparse.Namespace) -> int:
    """Learn or classify."""
    return commands.run(args, PROGRAM)
