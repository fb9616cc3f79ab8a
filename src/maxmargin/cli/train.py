"""``maxmargin train``: train on a data file, or, without one, show why structure matters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maxmargin.cli import names
from maxmargin.cli.data import add_data_options, holds_trees, read_data
from maxmargin.cli.dataset import Dataset
from maxmargin.cli.exits import check_output, print_json
from maxmargin.cli.models import exit_code, make_model, picture_kind, report, save_outputs
from maxmargin.cli.names import one_of
from maxmargin.cli.settings import OF_CHECKPOINTS, OF_ESTIMATORS, OF_SOLVERS, add_settings
from maxmargin.errors import OptionError

if TYPE_CHECKING:
    from maxmargin.cli.metrics import Evaluation

SUMMARY = "train a model; without DATA, a demonstration"
DESCRIPTION = """\
Train a model and say how far from optimal it is. DATA is an .arff file (Mulan; labels named by the .xml beside it),
an .svm, .libsvm or .txt file (LIBSVM's text, with one or with several labels a line), an .hmm file (SVM-hmm's text),
a .dat file (SVM-hmm's text if its first line has qid:, else LIBSVM's; with --task ranking SVM-rank's), a .conll file
(words in columns, the last one their tags), a .conllu file (CoNLL-U), a .csv or .tsv file (a table; --target names
what is to be learned), a .jsonl or .json file (tagged tokens, or texts with entities), or an .mrg, .ptb or .brackets
file (trees), each possibly with .gz, .xz or .bz2, a .parquet file, a .zip file of .mrg files, an .npz file of rows,
sequences or graphs, or a folder of images and masks; --format says what the ending does not, and - is the standard
input.

Without DATA, two models are trained on a generated set whose labels depend on each other, one that knows of pairs of
labels and one that does not, each with C chosen on held-out data, and their test losses are compared."""
_NEED_DATA = (
    "task", "format", "features", "xml", "n_labels", "split", "target", "drop", "label_names", "superpixels",
    "word_column", "tag_column", "comment", "edges", "edge_weights", "test", "eval", "patience", "kernel", "gamma", "degree",
    "objective", "scale", "device", "max_memory", "validation_fraction", "cv", "markov", "parent", "min_count", "span_features",
    "unparsable", "max_words", *OF_SOLVERS, *OF_ESTIMATORS, *OF_CHECKPOINTS, "settings", "dask",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("data", metavar="DATA", nargs="?", help="training data; without it, the demonstration")
    add_data_options(parser, training=True)
    _add_task_options(parser)
    _add_model_options(parser)
    add_settings(parser)
    parser.add_argument(
        "--tol", type=float, metavar="T", help="certified gap at which to stop, in units of the loss (default: 0.001)"
    )
    parser.add_argument("--max-passes", type=int, metavar="N", help="most passes over the data (default: 1000)")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="most seconds of training (default: no limit)")
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        help="refuse to train if that would take more memory, such as 4GB (default: no limit)",
    )
    parser.add_argument("--no-intercept", action="store_true", default=None, help="no constant feature")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the solver (default: 0)")
    parser.add_argument("--eval", metavar="DATA", help="held-out data, whose loss is computed during training")
    parser.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="stop after N checks without a smaller loss on --eval; keep the best weights",
    )
    parser.add_argument("--test", metavar="DATA", help="evaluate on this data afterwards")
    parser.add_argument("-o", "--output", metavar="FILE", help="save the model there, such as model.mm")
    parser.add_argument("--plot", metavar="FILE", help="save a picture of the convergence there, such as gap.png")
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")
    parser.add_argument("--quiet", action="store_true", help="no progress on the standard error")


def _add_task_options(parser: argparse.ArgumentParser) -> None:
    """Options of one task each."""
    parser.add_argument(
        "--edges",
        type=one_of("set of edges", names.EDGES),
        metavar="NAME",
        help="full, tree, none: pairs of labels with a weight (multi-label; default: full)",
    )
    parser.add_argument(
        "--edge-weights",
        type=one_of("kind of weights", names.EDGE_WEIGHTS),
        metavar="NAME",
        help="full, potts: weights of an edge's classes (graph; default: full)",
    )
    parser.add_argument(
        "--markov", type=int, metavar="N", help="labels that a binarised node remembers (parser; default: all)"
    )
    parser.add_argument(
        "--parent", action="store_true", default=None, help="annotate symbols with the label above (parser)"
    )
    parser.add_argument(
        "--min-count", type=int, metavar="N", help="leave out rules seen fewer times (parser; default: 1)"
    )
    parser.add_argument(
        "--span-features", type=names_list, metavar="A,B", help="of first, last, length, split (parser; default: none)"
    )
    parser.add_argument(
        "--unparsable", choices=("stop", "skip"), help="at a tree that the rules do not derive (parser; default: stop)"
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options that say what is trained, and by which algorithm."""
    parser.add_argument(
        "--solver",
        metavar="NAME",
        help=f"auto, {', '.join(names.SOLVERS)} (default: auto)",
    )
    parser.add_argument(
        "--objective",
        type=one_of("objective", names.OBJECTIVES),
        metavar="NAME",
        help="margin (the hinge; the default), log (the log-likelihood: a conditional random field), or softmax-margin (the same "
        "with the task loss in the exponent)",
    )
    parser.add_argument(
        "--inference",
        metavar="NAME",
        help=f"auto, {', '.join(names.ENGINES)} (default: auto)",
    )
    parser.add_argument(
        "--kernel",
        type=one_of("kernel", names.KERNELS),
        metavar="NAME",
        help=f"{', '.join(names.KERNELS)}: of the features of examples, positions or nodes (default: linear)",
    )
    parser.add_argument(
        "--gamma",
        type=word_or_number("scale"),
        metavar="G",
        help="of rbf and poly: a number, or scale, 1 / (p var X) (default: scale)",
    )
    parser.add_argument("--degree", type=int, metavar="D", help="of poly (default: 3)")
    parser.add_argument(
        "-C",
        "--C",
        type=word_or_number("auto", several=True),
        metavar="C",
        help="strength of the loss against the regulariser: a number; several with commas, or auto, to choose from on held-out "
        "examples (default: auto)",
    )
    parser.add_argument(
        "--folds",
        type=int,
        metavar="N",
        dest="cv",
        help="choose C in so many folds, in each of which other examples are held out (default: one part, or 5 of little data)",
    )
    parser.add_argument(
        "--validation-fraction",
        type=float,
        metavar="F",
        help="share of the examples held out to choose C (default: 0.2)",
    )
    parser.add_argument(
        "--scale",
        type=one_of("choice", names.SCALES),
        metavar="NAME",
        help="auto, yes, no: columns of features on one scale (default: auto, where they need it)",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda, cuda:1 and so on, torch: where to train (default: cpu; the others need the extra torch)",
    )
    parser.add_argument(
        "--loss",
        metavar="NAME",
        type=_loss,
        help="hamming (wrong labels over the mean number of labels; the default), fraction (of each example's labels), count, or "
        "zero-one (any mistake; graphs without cycles); of two classes also f1, f2, precision@10%%, recall@100, "
        "break-even, roc-area; of a parser "
        "brackets (the default) or zero-one; of a ranking pairs (the default) or queries; or a table of costs as JSON, "
        "[[0,1],[5,0]] by true and predicted label",
    )


def _loss(text: str) -> Any:
    """A name, or a table of costs."""
    if not text.lstrip().startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no table of costs, such as [[0,1],[5,0]]") from None


def run(args: argparse.Namespace) -> int:
    """Train, save, report."""
    check_output(args.output)
    check_output(args.plot)
    if args.plot is not None:
        from maxmargin.reporting.plots import require_matplotlib

        require_matplotlib()
        picture_kind(args.plot)
    if args.data is None:
        from maxmargin.cli.demonstration import run_demonstration

        for option in _NEED_DATA:
            if getattr(args, option) is not None:
                name = {"settings": "set", "cv": "folds"}.get(option, option.replace("_", "-"))
                raise OptionError(f"--{name} needs DATA; without it, train runs its demonstration.")
        if isinstance(args.C, list):
            raise OptionError("Several values of -C need DATA; without it, train runs its demonstration.")
        _hush(args)
        return run_demonstration(args)
    if args.eval == "-" and "-" in (args.data, args.test):
        raise OptionError("--eval is -, the standard input, which can be read once, and so is DATA or --test.")
    if args.data == args.test == "-":
        raise OptionError("DATA and --test are both -, the standard input, which can be read once.")
    # Options that cannot be are found before the data is read, which says the task if nothing else does.
    make_model(args, args.task or _early_task(args), early=args.task is None)
    data = read_data(args.data, args)
    model = make_model(args, data.task, **data.parameters)
    _hush(args)
    with _trained_by(args, model):
        model.fit(data.inputs, data.targets, **data.more, **_watching(args, model))
    if data.feature_names is not None:
        model._feature_names = data.feature_names
    saved = save_outputs(args, model, model.result_)
    test = None if args.test is None else _test(args, model)
    if args.json:
        print_json(
            report(args, model)
            | {
                "data": args.data,
                "n_examples": len(data),
                "eval": None if args.eval is None else _best_check(args, model),
                "test": None if test is None else test.report(),
                "model": args.output,
            }
        )
    else:
        _print(args, model, data, test, saved)
    return exit_code([model.result_])


def _watching(args: argparse.Namespace, model: Any) -> dict[str, Any]:
    """What ``--eval`` and ``--patience`` ask of `fit`."""
    if args.eval is None:
        if args.patience is not None:
            raise OptionError("--patience is about held-out data; give it as --eval DATA.")
        return {}
    if model.task == "ranking":
        raise OptionError("--eval is not for the task ranking.")
    plain = argparse.Namespace(**vars(args))
    plain.split = plain.max_words = None

    def held(trained: Any) -> tuple[Any, Any]:
        """Read in the terms of the model, whose columns and labels are known when training has begun."""
        found = read_data(args.eval, plain, trained)
        return found.inputs, found.targets

    return {"eval_set": held, "patience": args.patience}


@contextmanager
def _trained_by(args: argparse.Namespace, model: Any) -> Iterator[None]:
    """With ``--dask``, the model is trained by a cluster; afterwards it is as any other."""
    if args.dask is None:
        yield
        return
    try:
        from maxmargin.dask import OnCluster, connected
    except ImportError as error:
        raise OptionError(f"--dask: {error}") from None
    if not hasattr(model, "objective"):
        raise OptionError(f"--dask is not for the task {model.task}.")
    with connected(args.dask) as client:
        device = getattr(model, "device", "cpu")
        on_cluster = OnCluster(client, model.solver, None, model.objective, model.inference, device)
        model.solver = on_cluster
        if device != "cpu":
            # The workers' own; what is done here is done on the processor.
            model.device = "cpu"
        try:
            yield
        finally:
            model.solver = on_cluster.solver
            if device != "cpu":
                model.device = device


def _best_check(args: argparse.Namespace, model: Any) -> dict[str, Any]:
    said = model.result_.options
    return {"data": args.eval, "best_pass": said.get("best_pass"), "best_loss": said.get("best_eval_loss")}


def _hush(args: argparse.Namespace) -> None:
    if args.quiet:
        from maxmargin import jit

        jit.silence()


def word_or_number(word: str, several: bool = False) -> Callable[[str], float | list[float] | str]:
    """For argparse: an option that is a certain word, or a number, or several of them with commas."""

    def value(text: str) -> float | list[float] | str:
        if text == word:
            return text
        try:
            return [float(one) for one in text.split(",") if one.strip()] if several and "," in text else float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is neither {word} nor a number") from None

    return value


def _early_task(args: argparse.Namespace) -> str:
    """A task that takes the options, whatever the data turns out to be."""
    if holds_trees(args.data, args):
        return "parser"
    if args.edges is not None:
        return "multi-label"
    return "graph" if args.edge_weights is not None else "binary"


def names_list(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _test(args: argparse.Namespace, model: Any) -> Evaluation:
    from maxmargin.cli.metrics import evaluate_model

    for_test = argparse.Namespace(**vars(args))
    for_test.split = for_test.max_words = None
    return evaluate_model(model, read_data(args.test, for_test, model))


def _print(args: argparse.Namespace, model: Any, data: Dataset, test: Evaluation | None, saved: list[str]) -> None:
    from maxmargin.cli.info import describe_kernel, sizes_of
    from maxmargin.solvers.core.result import CERTIFICATES

    result = model.result_
    noun = {"graph": "graphs", "chain": "sequences", "parser": "trees"}.get(model.task, "examples")
    if model.task == "parser":
        sizes = ", ".join(f"{size} {name.replace('_', ' ')}" for name, size in sizes_of(model).items())
    else:
        pairs = f", {len(model.edges_)} pairs" if model.task == "multi-label" else ""
        sizes = f"{model.n_features_in_} features, {len(model.classes_)} labels{pairs}"
    print(f"data         {data.path}: {len(data)} {noun}, {sizes} ({model.task})")
    if getattr(model, "kernel", "linear") != "linear":
        print(f"kernel       {describe_kernel(model)}")
    print(f"solver       {result.solver}: {result.options.get('reason', '')}")
    print(f"inference    {model.inference_}")
    print(f"training     {result.status} after {result.n_passes} passes, {result.seconds:.2f} s")
    if "best_pass" in result.options:
        best = _best_check(args, model)
        print(f"held out     {args.eval}: the least loss was {best['best_loss']:.4g}, at pass {best['best_pass']}")
    if "n_shards" in result.options:
        said = result.options
        print(
            f"cluster      {said['n_shards']} shards, {said['n_rounds']} rounds of {said['round_seconds']:.3g} s, "
            f"{said['bytes_down']} bytes down and {said['bytes_up']} up"
        )
    print(f"C            {model.C_:g}: {result.options.get('C_reason', 'as asked')}")
    print(f"objective    between {result.dual:.6g} and {result.primal:.6g}: gap {result.gap:.2g}, tol {model.tol:g}")
    print(f"certificate  {result.certificate}: {CERTIFICATES[result.certificate]}")
    if test is not None:
        print(f"test         {args.test}: {test.n_examples} {noun}")
        print("\n".join(test.lines()))
    for sentence in saved:
        print(sentence)
    if not saved:
        print("Not saved; -o model.mm keeps the model.")
