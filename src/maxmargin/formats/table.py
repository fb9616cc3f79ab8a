"""Tables with named columns: CSV, TSV and Parquet.

Conventions
-----------
A row is an example. The first line of a text file names the columns; of ``,``, ``;`` and tabs, the one that stands most often in
it is between them. Cells may be in double quotes. A column whose cells are all numbers (``true`` and ``false`` are 1 and 0) is a
column of numbers, and every other is one of text. An empty cell, ``NA``, ``nan``, ``null``, ``None`` and ``?`` are missing values,
which are refused with their line and column, as are infinite ones.

Features are the columns that are no targets, in the order of the file. A column of text becomes a column of zeros and ones for
each of its values, ``colour=red``, in their order; the matrix is then a CSR matrix.

Parquet needs pyarrow (the extra ``table``).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.formats.compression import open_text

#: Endings of files with columns of text or of Parquet.
TABLES = (".csv", ".tsv", ".parquet", ".pq")
_MISSING = frozenset({"", "na", "nan", "null", "none", "?", "n/a"})
_TRUTH = {"true": 1.0, "false": 0.0}
#: So many rows are turned into columns at a time.
_BLOCK_ROWS = 8192
#: The most a cell may hold; a quote that is never closed would otherwise swallow the file.
_MOST_CELL = 1 << 20


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name.

    Attributes
    ----------
    place : str
        The file, as errors name it.
    columns : dict of str to ndarray of float64 or list of str
        Numbers or text, one a row.
    lines : ndarray of int64, or None
        The line of each row in a text file; None of Parquet, whose rows count from 0.
    """

    place: str
    columns: dict[str, NDArray[np.float64] | list[str]]
    lines: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def at(self, row: int) -> str:
        """The place of a row, for sentences.

        Parameters
        ----------
        row : int
            Its number, from 0.
        """
        return f"{self.place}, row {row}" if self.lines is None else f"{self.place}, line {self.lines[row]}"

    def check_names(self, names: Sequence[str], what: str) -> None:
        """Refuse names that are no columns, and say which there are.

        Parameters
        ----------
        names : sequence of str
            The names that are asked for.
        what : str
            What they are, for the sentence: "target".
        """
        for name in names:
            if name not in self.columns:
                known = ", ".join(list(self.columns)[:30]) + (", ..." if len(self.columns) > 30 else "")
                raise DataError(
                    f"{self.place} has no column {name!r} ({what}); its columns are {known}.{did_you_mean(name, self.columns)}"
                )

    def features(self, leave_out: Sequence[str] = ()) -> tuple[NDArray[np.float64] | csr_array[np.float64], list[str]]:
        """A matrix of all columns but some, and the names of its columns.

        Parameters
        ----------
        leave_out : sequence of str
            Columns that are no features, such as targets.
        """
        names: list[str] = []
        for name, values in self.columns.items():
            if name in leave_out:
                continue
            texts = isinstance(values, list)
            names += [f"{name}={value}" for value in sorted(set(values))] if texts else [name]
        if not names:
            raise DataError(f"{self.place} has no columns left for features.")
        return self.named_features(names), names

    def named_features(self, names: Sequence[str]) -> NDArray[np.float64] | csr_array[np.float64]:
        """The matrix of features with these names: columns of numbers, or ``column=value``.

        Parameters
        ----------
        names : sequence of str
            Names as `features` returns them. A value that a column of text has and no name does is 0 in all of its columns.
        """
        parts: list[Any] = []
        numbers: list[NDArray[np.float64]] = []
        texts: dict[str, list[tuple[int, str]]] = {}
        order: list[int] = []
        for at, name in enumerate(names):
            values = self.columns.get(name)
            if values is not None and not isinstance(values, list):
                numbers.append(values)
                order.append(at)
                continue
            column = next(
                (name[:k] for k, letter in enumerate(name) if letter == "=" and name[:k] in self.columns), None
            )
            if column is None or name in self.columns:
                self._complain(name, column or name)
                raise AssertionError
            texts.setdefault(column, []).append((at, name[len(column) + 1 :]))
        if not texts:
            return np.column_stack(numbers)
        if numbers:
            parts.append(csr_array(np.column_stack(numbers)))
        for column, wanted in texts.items():
            parts.append(self._one_hot(column, [value for _, value in wanted]))
            order += [at for at, _ in wanted]
        place = np.empty(len(names), np.int64)
        place[order] = np.arange(len(names))
        stacked = csr_array(hstack(parts, format="csr"))
        return csr_array(stacked[:, place]) if order != sorted(order) else stacked

    def _complain(self, name: str, column: str) -> None:
        """Refuse a feature that the table does not have."""
        if column in self.columns:
            values = self.columns[column]
            row = next(row for row, text in enumerate(values) if _number(str(text)) is None)
            raise DataError(
                f"{self.at(row)}, column {column!r}: {values[row]!r} was found where a number was expected."
            )
        self.check_names([name], "feature")

    def _one_hot(self, column: str, values: list[str]) -> csr_array[np.float64]:
        found = self.columns[column]
        number = {value: k for k, value in enumerate(values)}
        # Values that were numbers in this file but not in another are text all the same.
        texts = found if isinstance(found, list) else [f"{value:g}" for value in found.tolist()]
        at = np.array([number.get(text, -1) for text in texts], np.int64)
        rows = np.flatnonzero(at >= 0)
        return csr_array((np.ones(len(rows)), (rows, at[rows])), shape=(len(texts), len(values)))

    def classes(self, name: str) -> list[Any]:
        """The classes in a column: whole numbers, or text.

        Parameters
        ----------
        name : str
            The column.
        """
        values = self.columns[name]
        if isinstance(values, list):
            return list(values)
        wrong = np.flatnonzero(values != np.rint(values))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{self.at(row)}, column {name!r}: {values[row]:g} was found where a class was expected: text or a whole number."
            )
        return [int(value) for value in values.tolist()]

    def label_sets(self, names: Sequence[str]) -> NDArray[np.int8]:
        """Several columns of zeros and ones, (n, L).

        Parameters
        ----------
        names : sequence of str
            The columns.
        """
        made = np.empty((len(self), len(names)), np.int8)
        for k, name in enumerate(names):
            values = self.columns[name]
            fine = (
                [_number(text) in (0.0, 1.0) for text in values]
                if isinstance(values, list)
                else np.isin(values, (0, 1))
            )
            if isinstance(values, list) or not np.all(fine):
                row = int(np.flatnonzero(~np.asarray(fine))[0])
                found = values[row] if isinstance(values, list) else f"{values[row]:g}"
                raise DataError(
                    f"{self.at(row)}, column {name!r}: {found!r} was found; several targets are label sets, of zeros and ones."
                )
            made[:, k] = values
        return made


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table, possibly compressed if it is text; the ending says which kind it is.

    Parameters
    ----------
    path : path-like
        A file of CSV, TSV or Parquet; Parquet if it ends in ``.parquet`` or ``.pq``.

    Returns
    -------
    Table
    """
    if PurePath(os.fspath(path)).suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(os.fspath(path))
    table = _read_text(path, frozenset())
    return table if isinstance(table, Table) else _checked(_read_text(path, table))


def _checked(table: Table | frozenset[str]) -> Table:
    assert isinstance(table, Table)
    return table


# --------------------------------------------------------------------------------------------------------------------
# Text


def _read_text(path: str | os.PathLike[str], texts: frozenset[str]) -> Table | frozenset[str]:
    """The table; or the names of columns that turn out to be text only after some numbers, to be read again as such."""
    place = os.fspath(path)
    late: set[str] = set()
    parts: dict[str, list[Any]] = {}
    lines: list[int] = []
    kind: dict[str, type] = {}
    for names, numbers, rows in _blocks(path):
        lines += numbers
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            of_text = name in texts or kind.get(name) is str
            values = None if of_text else _fast_numbers(cells)
            if values is not None:
                kind[name] = float
                parts.setdefault(name, []).append(values)
                continue
            stripped = [cell.strip() for cell in cells]
            _check_missing(place, numbers, name, stripped)
            values = None if of_text else _numbers(place, numbers, name, stripped)
            if values is None and kind.get(name) is float:
                late.add(name)
            kind.setdefault(name, str if values is None else float)
            parts.setdefault(name, []).append(stripped if values is None else values)
    if not lines:
        raise DataError(f"{place}: there are no rows in the file.")
    if late:
        return texts | late
    columns: dict[str, NDArray[np.float64] | list[str]] = {}
    for name, blocks in parts.items():
        columns[name] = np.concatenate(blocks) if kind[name] is float else [text for block in blocks for text in block]
    return Table(place, columns, np.array(lines, np.int64))


def _blocks(path: str | os.PathLike[str]) -> Iterator[tuple[list[str], list[int], list[list[str]]]]:
    """The names of the columns, and lines with their numbers, block by block."""
    place = os.fspath(path)
    with open_text(path) as stream:
        header = stream.readline()
        if not header.strip():
            raise DataError(f"{place}: the first line is empty; expected the names of the columns.")
        between = max(",;\t", key=header.count)
        names = [name.strip() for name in next(csv.reader([header.rstrip("\n")], delimiter=between))]
        _check_header(place, names)
        numbers: list[int] = []
        rows: list[list[str]] = []
        for number, cells in _rows(place, stream, between):
            if len(cells) != len(names):
                raise DataError(
                    f"{place}, line {number}: {len(cells)} cells found, but the header names {len(names)} columns."
                )
            numbers.append(number)
            rows.append(cells)
            if len(rows) == _BLOCK_ROWS:
                yield names, numbers, rows
                numbers, rows = [], []
        if rows:
            yield names, numbers, rows


def _rows(place: str, stream: Any, between: str) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, and the number of its first line; empty lines are skipped."""
    csv.field_size_limit(_MOST_CELL)
    reader = csv.reader(stream, delimiter=between, strict=True)
    first = 2
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + 2
    except csv.Error as error:
        raise DataError(f"{place}, line {first}: this is no row of a table: {error}.") from error


def _check_header(place: str, names: list[str]) -> None:
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name:
            raise DataError(f"{place}, line 1: column {k + 1} has no name.")
        if name in seen:
            raise DataError(f"{place}, line 1: two columns are called {name!r}.")
        seen.add(name)
    if all(_number(name) is not None for name in names):
        raise DataError(f"{place}, line 1: {', '.join(names[:5])} are numbers; expected the names of the columns.")


def _check_missing(place: str, lines: list[int], name: str, cells: Sequence[str]) -> None:
    for cell in set(cells):
        if cell.lower() in _MISSING:
            raise DataError(
                f"{place}, line {lines[list(cells).index(cell)]}, column {name!r}: the value is missing ({cell!r}); fill it in, or "
                "leave the row or the column out."
            )


def _fast_numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """A block of a column that holds nothing but finite numbers; None if it may be anything else."""
    try:
        values = np.array(list(map(float, cells)), np.float64)
    except ValueError:
        return None
    # Python reads 1_000 as a number, which nobody else does.
    return values if np.isfinite(values).all() and "_" not in "".join(cells) else None


def _numbers(place: str, lines: list[int], name: str, cells: Sequence[str]) -> NDArray[np.float64] | None:
    """A block of a column as numbers; None if it holds anything else."""
    found = [_number(cell) for cell in cells]
    if None in found:
        return None
    values = np.array(found, np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"{place}, line {lines[row]}, column {name!r}: {cells[row]!r} is not finite.")
    return values


def _number(text: str) -> float | None:
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


# --------------------------------------------------------------------------------------------------------------------
# Parquet


def _read_parquet(place: str) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise OptionError(
            f"{place}: reading Parquet needs pyarrow: pip install 'maxmargin[table]'; or save the table as CSV."
        ) from None
    try:
        # Opened here, so that a name is never taken for an address of a remote file system.
        with open(place, "rb") as stream:
            found = pq.read_table(stream)
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or str(error).splitlines()[0]}.") from error
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{place} is no Parquet file that can be read: {str(error).splitlines()[0]}.") from error
    _check_header(place, list(found.column_names))
    columns: dict[str, NDArray[np.float64] | list[str]] = {}
    for name, column in zip(found.column_names, found.columns, strict=True):
        columns[name] = _arrow_column(place, name, column, pa)
    if not len(found):
        raise DataError(f"{place}: there are no rows in the file.")
    return Table(place, columns, None)


def _arrow_column(place: str, name: str, column: Any, pa: Any) -> NDArray[np.float64] | list[str]:
    where = f"column {name!r}"
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    missing = np.flatnonzero(column.is_null(nan_is_null=True).to_numpy())
    if len(missing):
        raise DataError(
            f"{place}, row {missing[0]}, {where}: the value is missing; fill it in, or leave the row or the column out."
        )
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        values = np.asarray(column.to_pylist() if pa.types.is_decimal(kind) else column.to_numpy(), dtype=np.float64)
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise DataError(f"{place}, row {wrong[0]}, {where}: {values[wrong[0]]} is not finite.")
        return values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [str(text) for text in column.to_pylist()]
    raise DataError(f"{place}, {where} holds values of the type {kind}; expected numbers or text.")
