"""What ``svm-multiclass`` and ``svm-hmm`` share: their arguments, and the course of ``learn`` and ``classify``."""

from __future__ import annotations

import argparse
import time
from typing import Any, Protocol

from maxmargin.cli.exits import DONE, check_output, say, writing
from maxmargin.cli.svm_struct.options import CLASSIFY, LEARN, Options, describe, parse
from maxmargin.errors import DataError, ModelFileError, OptionError

#: How model files of SVM-struct's own programs begin.
_THEIR_MODELS = (b"SVM-multiclass Version", b"SVM-HMM Version", b"SVM-light Version")
_FILES = {
    "learn": ("[options] TRAIN [MODEL]", ("the training data", "the model"), "svm_struct_model"),
    "classify": (
        "[options] TEST MODEL [PREDICTIONS]",
        ("the test data", "a model", "the predictions"),
        "svm_predictions",
    ),
}


class Program(Protocol):
    """One of SVM-struct's applications."""

    name: str
    task: str
    learn_options: dict[str, tuple[type, Any, str]]
    classify_options: dict[str, tuple[type, Any, str]]

    def read(self, path: str, model: Any = None) -> tuple[Any, Any, int]:
        """Inputs, targets and the number of examples of a file."""

    def make(self, command: str, options: Options, targets: Any) -> Any:
        """The estimator that the options describe."""

    def classify(self, model: Any, inputs: Any) -> tuple[Any, str]:
        """Predictions, and the text of the file of predictions."""

    def figures(self, model: Any, targets: Any, predicted: Any) -> list[str]:
        """What SVM-struct prints of predictions whose truth is known; no lines if it is not."""


def add_arguments(parser: argparse.ArgumentParser, program: Program) -> None:
    """Arguments of one of the programs: all of them are read by `options.parse`."""
    parser.add_argument("action", choices=("learn", "classify"), help="train, or predict")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="...", help="options and files, as SVM-struct has them"
    )
    parser.set_defaults(print_help=parser.print_help)
    parser.usage = "\n       ".join(f"maxmargin {program.name} {action} {_FILES[action][0]}" for action in _FILES)
    parser.epilog = (
        f"options of learn:\n{describe(LEARN, program.learn_options)}\n"
        f"options of classify:\n{describe(CLASSIFY, program.classify_options)}\n\n{parser.epilog}"
    )


def run(args: argparse.Namespace, program: Program) -> int:
    """Do what ``svm_*_learn`` or ``svm_*_classify`` would."""
    command = f"{program.name} {args.action}"
    learning = args.action == "learn"
    if args.words and args.words[0] in ("--help", "-?"):
        args.print_help()
        return DONE
    own = program.learn_options if learning else program.classify_options
    options = parse(command, args.words, LEARN if learning else CLASSIFY, own)
    if options.values.get("--b"):
        say(f"--b {options['--b']} is ignored: the exact Viterbi algorithm is used.")
    usage, nouns, default = _FILES[args.action]
    least = len(nouns) - 1
    if not least <= len(options.files) <= len(nouns):
        found = f"{len(options.files)} file{'s' if len(options.files) != 1 else ''}"
        raise OptionError(
            f"{command}: {found} found; expected {', '.join(nouns[:-1])} and, if it is not to be {default}, {nouns[-1]}: "
            f"maxmargin {program.name} {args.action} {usage}."
        )
    output = options.files[-1] if len(options.files) == len(nouns) else default
    check_output(output)
    if learning:
        return _learn(command, program, options, output)
    return _classify(command, program, options, output)


def _learn(command: str, program: Program, options: Options, output: str) -> int:
    from maxmargin.cli.models import exit_code, save_outputs

    inputs, targets, n = program.read(options.files[0])
    model = program.make(command, options, targets)
    if options["-v"] == 0:
        from maxmargin import jit

        jit.silence()
    model.fit(inputs, targets)
    # The files count features from 1.
    model._feature_names = [str(index) for index in range(1, model.n_features_in_ + 1)]
    saved = save_outputs(argparse.Namespace(output=output, plot=None), model, model.result_)
    result = model.result_
    if options["-v"] > 0:
        print(f"Training set: {n} examples, {model.n_features_in_} features, {len(model.classes_)} classes.")
        print(f"{result.solver}: {result.status} after {result.n_passes} rounds, {result.seconds:.2f} s.")
        print(
            f"Their objective: {model.C_ * result.primal:.5f}, at least {model.C_ * result.dual:.5f} ({result.certificate})."
        )
        print(f"{saved[0]} It is a model file of maxmargin, which SVM-struct's programs do not read.")
    return exit_code([result])


def _classify(command: str, program: Program, options: Options, output: str) -> int:
    model = _load(command, program, options.files[1])
    inputs, targets, n = program.read(options.files[0], model)
    started = time.process_time()
    predicted, text = program.classify(model, inputs)
    seconds = time.process_time() - started
    from maxmargin.formats.atomic import atomic_write

    with writing(output), atomic_write(output) as stream:
        stream.write(text.encode())
    if options["-v"] > 0:
        print(f"Classifying test examples... ({n} examples) done.")
        print(f"Runtime (without IO) in cpu-seconds: {seconds:.2f}")
        figures = program.figures(model, targets, predicted)
        print("\n".join(figures or ["The file has no labels to compare with."]))
    return DONE


def _load(command: str, program: Program, path: str) -> Any:
    """A model of the program's task."""
    from maxmargin.cli.models import load_model

    try:
        model = load_model(path)
    except ModelFileError as error:
        with open(path, "rb") as stream:
            theirs = stream.read(32).startswith(_THEIR_MODELS)
        if not theirs:
            raise
        raise ModelFileError(
            f"{path} is a model of SVM-struct's own program; train it again by 'maxmargin {program.name} learn', which reads the "
            "same training data and options."
        ) from error
    if model.task != program.task:
        raise DataError(
            f"{path} is a model for the task {model.task}; {command} needs one for the task {program.task}."
        )
    if hasattr(model, "vectoriser_"):
        raise DataError(f"{path} was trained on words or named features; {command} reads numbered ones.")
    return model


def whole_numbers_from_1(path: str, labels: list[Any], noun: str) -> None:
    """Refuse labels that SVM-struct would refuse; None, which is not known, is fine."""
    wrong = next((one for one in labels if one is not None and not (isinstance(one, int) and one >= 1)), None)
    if wrong is not None:
        raise DataError(
            f"{path}: the {noun} {wrong!r} was found; SVM-struct's files have whole numbers from 1 ('maxmargin train' takes names)."
        )


def say_missing(labels: list[Any], noun: str) -> None:
    """Say which numbers up to the largest have no example: SVM-struct has weights for them."""
    known = set(labels)
    missing = [k for k in range(1, max(known)) if k not in known]
    if missing:
        several = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        say(f"No example has the {noun} {several}: it is never predicted.")
