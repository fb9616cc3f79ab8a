"""Tables: CSV, TSV and Parquet, with targets that ``--target`` names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from maxmargin.cli.dataset import CLASSES, Dataset, NamedColumns, classes_or, known_feature_names, task_of
from maxmargin.cli.exits import say
from maxmargin.errors import DataError, OptionError

if TYPE_CHECKING:
    from maxmargin.formats import Table


def read(path: str, args: argparse.Namespace, model: Any) -> Dataset:
    """Read features and targets; of a model, the columns that it was trained with, wherever they stand."""
    from maxmargin.formats import read_table

    table = read_table(path)
    return _to_train(table, args) if model is None else _for_model(table, args, model)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _to_train(table: Table, args: argparse.Namespace) -> Dataset:
    targets, dropped = _names(args.target), _names(args.drop)
    if not targets:
        known = ", ".join(list(table.columns)[:30])
        raise OptionError(
            f"{table.place} is a table: say which column is to be learned by --target; its columns are {known}."
        )
    table.check_names(targets, "--target")
    table.check_names(dropped, "--drop")
    if len(set(targets)) < len(targets):
        raise OptionError(f"--target names a column twice: {', '.join(targets)}.")
    if set(targets) & set(dropped):
        raise OptionError(f"{min(set(targets) & set(dropped))!r} is named by --target and by --drop.")
    several = len(targets) > 1
    possible = ("multi-label",) if several else (*CLASSES, "multi-label")
    labels = None if several or args.task == "multi-label" else table.classes(targets[0])
    task = task_of(table.place, "multi-label" if several else classes_or(labels), possible, args, None)
    inputs, names = table.features([*targets, *dropped])
    _say_texts(table, [*targets, *dropped])
    made: Any = labels if task in CLASSES else NamedColumns(table.label_sets(targets), targets)
    return Dataset(table.place, task, inputs, made, names, "table")


def _say_texts(table: Table, leave_out: list[str]) -> None:
    texts = {
        name: len(set(values))
        for name, values in table.columns.items()
        if isinstance(values, list) and name not in leave_out
    }
    if texts:
        listed = ", ".join(f"{name} ({count})" for name, count in list(texts.items())[:10])
        more = ", ..." if len(texts) > 10 else ""
        say(f"{table.place}: columns of text, as zeros and ones for each of their values: {listed}{more}.")


def _for_model(table: Table, args: argparse.Namespace, model: Any) -> Dataset:
    names = known_feature_names(model)
    if names is None:
        raise DataError(f"{table.place} is a table, but the model was not trained on columns with names.")
    task = task_of(table.place, "table", (*CLASSES, "multi-label"), args, model)
    inputs = table.named_features(names)
    _say_new(table, names)
    targets = _targets(table, args, model, names)
    if not targets:
        return Dataset(table.place, task, inputs, None, names, "table")
    if task == "multi-label":
        return Dataset(table.place, task, inputs, table.label_sets(targets), names, "table")
    labels = table.classes(targets[0])
    known = set(model.classes_.tolist())
    row = next((row for row, label in enumerate(labels) if label not in known), None)
    if row is not None:
        raise DataError(
            f"{table.at(row)}, column {targets[0]!r}: {labels[row]!r} is not among the {len(known)} classes of the model."
        )
    return Dataset(table.place, task, inputs, labels, names, "table")


def _targets(table: Table, args: argparse.Namespace, model: Any, features: list[str]) -> list[str]:
    """The columns of targets: those that are named, or what is left over, if that is clear; none if there are none."""
    asked = _names(args.target)
    if model.task == "multi-label":
        classes = [str(label) for label in model.classes_]
        if asked and sorted(asked) != sorted(classes):
            raise OptionError(f"--target names {', '.join(asked)}, but the model's labels are {', '.join(classes)}.")
        there = [name for name in classes if name in table.columns]
        if (there and len(there) < len(classes)) or asked:
            table.check_names(classes, "label")
        return there
    if asked:
        table.check_names(asked, "--target")
        if len(asked) > 1:
            raise OptionError(f"--target names {len(asked)} columns, but the model has one class an example.")
        return asked
    used = {name for name in table.columns for feature in features if feature == name or feature.startswith(f"{name}=")}
    left = [name for name in table.columns if name not in used and name not in _names(args.drop)]
    return left if len(left) == 1 else []


def _say_new(table: Table, names: list[str]) -> None:
    """Say which values of text no training example had."""
    known = set(names)
    for column, values in table.columns.items():
        if isinstance(values, list) and any(name.startswith(f"{column}=") for name in names):
            new = sorted({value for value in values if f"{column}={value}" not in known})
            if new:
                more = f" and {len(new) - 1} more" if len(new) > 1 else ""
                say(
                    f"{table.place}, column {column!r}: {new[0]!r}{more} was not in the training data, and counts as no value."
                )
