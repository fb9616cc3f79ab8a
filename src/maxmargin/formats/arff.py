"""Multi-label data in Weka's ARFF, as published by Mulan and MEKA.

Conventions
-----------
Sparse rows ``{index value, ...}`` give a CSR matrix, dense rows an ndarray; a file has rows of one kind. A nominal
value stands for its number if all values of the attribute are numbers, else for its position among them. A sparse row
leaves out the *first* value of a nominal attribute (this is Weka's rule), hence that value must stand for zero. Labels
are attributes with values 0 and 1, in the order of the ARFF.

There are two parsers of rows: `_parse_fast` handles all rows in a few passes and gives up (returns None) on anything
out of the ordinary; `_parse_slow` goes line by line, defines what is accepted, and names the line that is not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from maxmargin.errors import DataError, OptionError, did_you_mean
from maxmargin.formats.compression import open_binary, open_text
from maxmargin.formats.multilabel import MultiLabelData, check_label_cells

_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{}}'\"][^\s{{}}]*)\s*(.*)", re.IGNORECASE)
_NOMINAL_VALUE = re.compile(rf"\s*({_QUOTED}\s*|[^,{{}}'\"\s][^,{{}}]*)([,}}])")
_ROW_VALUE = re.compile(rf"((?:{_QUOTED}|[^,'\"])*)(,|$)")
# Digits can be read in one way only: a number that ends wrongly is found so in one pass.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MEKA_LABELS = re.compile(r"(?:^|\s)-C\s+(-?\d{1,18})(?!\d)", re.ASCII)
_COMPRESSION_SUFFIXES = {".xz", ".gz", ".bz2"}


def read_mulan(
    arff: str | os.PathLike[str], xml: str | os.PathLike[str] | None = None, n_labels: int | None = None
) -> MultiLabelData:
    """Read a multi-label ARFF file, dense or sparse, possibly compressed.

    Which attributes are labels is said by, in this order: `xml`; `n_labels`; the Mulan XML beside the ARFF
    (``yeast-train.xml`` or ``yeast.xml`` for ``yeast-train.arff.xz``); MEKA's option ``-C n`` in the @relation line
    (the first n attributes, or the last -n if n is negative).

    Parameters
    ----------
    arff : path-like
        The ARFF file.
    xml : path-like, optional
        The Mulan XML file that names the labels.
    n_labels : int, optional
        The last `n_labels` attributes are the labels.

    Returns
    -------
    MultiLabelData
        `X` is a csr_array if the rows are sparse, else an ndarray.
    """
    path = os.fspath(arff)
    if xml is not None and n_labels is not None:
        raise OptionError("The labels are named by xml or counted by n_labels; give one of the two, not both.")
    with open_text(arff) as stream:
        lines = stream.read().split("\n")
    header = _read_header(path, lines)
    label_columns = _label_columns(path, header, xml, n_labels)
    table = _parse_fast(header) or _parse_slow(path, header)
    return _split_labels(path, header, table, label_columns)


@dataclass(frozen=True)
class _Attribute:
    """One @attribute line; `numbers` are what the nominal values stand for, None if the attribute is numeric."""

    name: str
    line: int
    values: tuple[str, ...] | None = None
    numbers: tuple[float, ...] | None = None
    by_number: bool = False


@dataclass
class _Header:
    """What stands before the rows, and the rows as text with their line numbers."""

    attributes: list[_Attribute] = field(default_factory=list)
    meka_labels: int | None = None
    relation_line: int = 0
    rows: list[str] = field(default_factory=list)
    row_lines: list[int] = field(default_factory=list)

    @property
    def is_sparse(self) -> bool:
        return self.rows[0].startswith("{")


@dataclass(frozen=True)
class _Table:
    """All values: `values` (n, m) of dense rows, or the entries (row, column, value) of sparse rows."""

    values: NDArray[np.float64]
    rows: NDArray[np.int64] | None = None
    columns: NDArray[np.int64] | None = None


# --------------------------------------------------------------------------------------------------------------------
# Header


def _read_header(path: str, lines: list[str]) -> _Header:
    header = _Header()
    seen: dict[str, int] = {}
    data_line = 0
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if data_line:
            header.rows.append(line)
            header.row_lines.append(number)
            continue
        keyword = line.split(None, 1)[0].lower()
        if keyword == "@data":
            data_line = number
        elif keyword == "@relation":
            header.relation_line = number
            option = _MEKA_LABELS.search(line)
            header.meka_labels = int(option[1]) if option else None
        elif keyword == "@attribute":
            attribute = _read_attribute(path, number, line)
            if attribute.name in seen:
                raise DataError(
                    f"{path}, line {number}: the attribute {attribute.name!r} was declared before, "
                    f"in line {seen[attribute.name]}; names must differ."
                )
            seen[attribute.name] = number
            header.attributes.append(attribute)
        else:
            raise DataError(
                f"{path}, line {number}: {_short(line)} was found where @relation, @attribute or @data was expected."
            )
    if not data_line:
        raise DataError(f"{path}: there is no @data line, so this is no ARFF file or a part of one.")
    if not header.attributes:
        raise DataError(f"{path}, line {data_line}: @data comes before any @attribute.")
    if not header.rows:
        raise DataError(f"{path}, line {data_line}: there are no rows after @data.")
    if header.is_sparse:
        for attribute in header.attributes:
            if attribute.numbers is not None and attribute.numbers[0] != 0:
                raise DataError(
                    f"{path}, line {attribute.line}: the first value of the attribute {attribute.name!r} is "
                    f"{attribute.numbers[0]:g}; a sparse row leaves out the first value, so it must be 0."
                )
    return header


def _read_attribute(path: str, number: int, line: str) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise DataError(
            f"{path}, line {number}: {_short(line)} is not of the form @attribute NAME TYPE, with a name that is "
            "quoted if it has spaces or braces."
        )
    name, kind = _unquote(match[1]), match[2]
    if kind.startswith("{"):
        values = _read_nominal(path, number, name, kind)
        by_number = all(_NUMBER.fullmatch(value) for value in values)
        numbers = tuple(float(value) for value in values) if by_number else tuple(map(float, range(len(values))))
        return _Attribute(name, number, values, numbers, by_number)
    kind = kind.partition("%")[0].strip()
    if kind.lower() not in {"numeric", "real", "integer"}:
        raise DataError(
            f"{path}, line {number}: the attribute {name!r} has the type {_short(kind)}; "
            "expected numeric, real, integer or values in braces."
        )
    return _Attribute(name, number)


def _read_nominal(path: str, number: int, name: str, kind: str) -> tuple[str, ...]:
    values: list[str] = []
    position, end = 1, ","
    while end == ",":
        match = _NOMINAL_VALUE.match(kind, position)
        if match is None:
            raise DataError(
                f"{path}, line {number}: the values of the attribute {name!r} are not of the form {{A,B,...}}: "
                f"{_short(kind)}."
            )
        values.append(_unquote(match[1].rstrip()))
        position, end = match.end(), match[2]
    rest = kind[position:].strip()
    if rest and not rest.startswith("%"):
        raise DataError(f"{path}, line {number}: {_short(rest)} was found after the values of the attribute {name!r}.")
    if len(set(values)) < len(values):
        raise DataError(f"{path}, line {number}: the attribute {name!r} has the same value twice.")
    return tuple(values)


def _unquote(text: str) -> str:
    if len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


# --------------------------------------------------------------------------------------------------------------------
# Labels


def _label_columns(
    path: str, header: _Header, xml: str | os.PathLike[str] | None, n_labels: int | None
) -> NDArray[np.int64]:
    """Return the numbers of the attributes that are labels, increasing."""
    m = len(header.attributes)
    if n_labels is not None:
        if isinstance(n_labels, bool) or not isinstance(n_labels, int | np.integer) or not 1 <= n_labels < m:
            raise OptionError(
                f"n_labels is {n_labels!r}, but {path} has {m} attributes; expected 1 to {m - 1}, "
                "so that a feature is left."
            )
        return np.arange(m - n_labels, m)
    xml_path = xml if xml is not None else _xml_beside(path)
    if xml_path is not None:
        return _columns_of_xml(path, header, os.fspath(xml_path))
    count = header.meka_labels
    if count is None:
        raise DataError(
            f"{path}: nothing says which attributes are labels. Expected an XML file beside it, the argument xml or "
            "n_labels, or the option -C in the @relation line."
        )
    if not 1 <= abs(count) < m:
        raise DataError(
            f"{path}, line {header.relation_line}: the option -C {count} does not fit the {m} attributes; "
            f"expected 1 to {m - 1} labels."
        )
    return np.arange(count) if count > 0 else np.arange(m + count, m)


def _xml_beside(path: str) -> Path | None:
    arff = Path(path)
    if arff.suffix.lower() in _COMPRESSION_SUFFIXES:
        arff = arff.with_suffix("")
    stem = arff.stem if arff.suffix.lower() == ".arff" else arff.name
    for name in (stem, re.sub(r"[-_](train|test)$", "", stem, flags=re.IGNORECASE)):
        candidate = arff.with_name(name + ".xml")
        if candidate.is_file():
            return candidate
    return None


def _columns_of_xml(path: str, header: _Header, xml_path: str) -> NDArray[np.int64]:
    column_of = {attribute.name: column for column, attribute in enumerate(header.attributes)}
    columns: set[int] = set()
    for line, name in _read_label_xml(xml_path):
        if name not in column_of:
            raise DataError(
                f"{xml_path}, line {line}: the label {name!r} is not among the attributes of {path}."
                + did_you_mean(name, column_of)
            )
        if column_of[name] in columns:
            raise DataError(f"{xml_path}, line {line}: the label {name!r} is named twice.")
        columns.add(column_of[name])
    if len(columns) == len(header.attributes):
        raise DataError(f"{xml_path}: all attributes of {path} are labels; expected at least one feature.")
    return np.array(sorted(columns), dtype=np.int64)


def _read_label_xml(xml_path: str) -> list[tuple[int, str]]:
    """Return the line and the name of every label of a Mulan XML."""
    with open_binary(xml_path) as stream:
        content = stream.read()
    labels: list[tuple[int, str]] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def refuse_declarations(*_: object) -> None:
        # Entities are the way to make a small XML explode or read other files, and label files need none.
        raise DataError(
            f"{xml_path}, line {parser.CurrentLineNumber}: a DOCTYPE was found; a label file must have none."
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag not in {"label", "http://mulan.sourceforge.net/labels label"}:
            return
        if "name" not in attributes:
            raise DataError(f"{xml_path}, line {parser.CurrentLineNumber}: a label has no name.")
        labels.append((parser.CurrentLineNumber, attributes["name"]))

    parser.StartDoctypeDeclHandler = refuse_declarations
    parser.EntityDeclHandler = refuse_declarations
    parser.StartElementHandler = start
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{xml_path}, line {error.lineno}: this is not well-formed XML ({reason}).") from error
    except DataError:
        raise
    # The encoding that an XML declares is looked up among Python's, and need not be there, or not be one of text.
    except (LookupError, ValueError, TypeError) as error:
        raise DataError(
            f"{xml_path}, line {parser.CurrentLineNumber}: the encoding that the XML declares cannot be read ({error})."
        ) from error
    if not labels:
        raise DataError(f"{xml_path}: no <label name=...> was found.")
    return labels


# --------------------------------------------------------------------------------------------------------------------
# Rows


def _parse_fast(header: _Header) -> _Table | None:
    """Parse all rows at once; None if anything is out of the ordinary, be it an error or not."""
    if any(attribute.numbers is not None and not attribute.by_number for attribute in header.attributes):
        return None
    return _parse_sparse_fast(header) if header.is_sparse else _parse_dense_fast(header)


def _parse_dense_fast(header: _Header) -> _Table | None:
    m = len(header.attributes)
    if any(row.count(",") != m - 1 for row in header.rows):
        return None
    text = ",".join(header.rows)
    flat = _to_numbers(text, text.split(","))
    if flat is None:
        return None
    values = flat.reshape(-1, m)
    for numbers, columns in _nominal_groups(header).items():
        if not np.isin(values[:, columns], numbers).all():
            return None
    return _Table(values)


def _parse_sparse_fast(header: _Header) -> _Table | None:
    if not all(row.startswith("{") and row.endswith("}") for row in header.rows):
        return None
    bodies = [row[1:-1].strip() for row in header.rows]
    counts = np.array([body.count(",") + 1 if body else 0 for body in bodies], dtype=np.int64)
    total = int(counts.sum())
    text = ",".join(body for body in bodies if body)
    # With the commas as tokens of their own, a well-formed row is exactly: index, value, comma, index, ...
    tokens = text.replace(",", " , ").split()
    if len(tokens) != max(3 * total - 1, 0) or tokens[2::3].count(",") != max(total - 1, 0):
        return None
    values = _to_numbers(text, tokens[1::3])
    if values is None or not all(map(str.isdecimal, tokens[0::3])):
        return None
    try:
        columns = np.array(list(map(int, tokens[0::3])), dtype=np.int64)
    except (ValueError, OverflowError):
        return None
    rows = np.repeat(np.arange(len(bodies)), counts)
    increasing = (np.diff(columns) > 0) | (np.diff(rows) > 0)
    if columns.max(initial=0) >= len(header.attributes) or not increasing.all():
        return None
    for numbers, group in _nominal_groups(header).items():
        in_group = np.zeros(len(header.attributes), dtype=bool)
        in_group[group] = True
        if not np.isin(values[in_group[columns]], numbers).all():
            return None
    return _Table(values, rows, columns)


def _to_numbers(text: str, tokens: list[str]) -> NDArray[np.float64] | None:
    """Convert tokens of a text, or return None where Python's float accepts more (or less) than ARFF does."""
    if not text.isascii() or "_" in text:
        return None
    try:
        values = np.array(list(map(float, tokens)), dtype=np.float64)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None


def _nominal_groups(header: _Header) -> dict[tuple[float, ...], list[int]]:
    """Return the columns of the nominal attributes, grouped by their set of values."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for column, attribute in enumerate(header.attributes):
        if attribute.numbers is not None:
            groups.setdefault(attribute.numbers, []).append(column)
    return groups


def _parse_slow(path: str, header: _Header) -> _Table:
    """Parse line by line, and raise the sentence on the first line that is wrong."""
    if not header.is_sparse:
        return _Table(
            np.array(
                [
                    _parse_dense_row(path, number, row, header.attributes)
                    for number, row in zip(header.row_lines, header.rows, strict=True)
                ]
            )
        )
    entries = [
        (row, column, value)
        for row, (number, text) in enumerate(zip(header.row_lines, header.rows, strict=True))
        for column, value in _parse_sparse_row(path, number, text, header.attributes)
    ]
    return _Table(
        np.array([value for _, _, value in entries], dtype=np.float64),
        np.array([row for row, _, _ in entries], dtype=np.int64),
        np.array([column for _, column, _ in entries], dtype=np.int64),
    )


def _parse_dense_row(path: str, number: int, row: str, attributes: list[_Attribute]) -> list[float]:
    if row.startswith("{"):
        raise DataError(f"{path}, line {number}: a sparse row was found in a file whose first row is dense.")
    values = _split_row(path, number, row)
    if len(values) != len(attributes):
        raise DataError(
            f"{path}, line {number}: the row has {len(values)} values; expected {len(attributes)}, one an attribute."
        )
    return [_parse_value(path, number, value, attribute) for value, attribute in zip(values, attributes, strict=True)]


def _parse_sparse_row(path: str, number: int, row: str, attributes: list[_Attribute]) -> Iterator[tuple[int, float]]:
    if not (row.startswith("{") and row.endswith("}") and len(row) > 1):
        raise DataError(
            f"{path}, line {number}: {_short(row)} is not a row in braces, as the first row of the file is."
        )
    body = row[1:-1].strip()
    previous = -1
    for pair in _split_row(path, number, body) if body else []:
        parts = pair.split(None, 1)
        if len(parts) != 2:
            raise DataError(f"{path}, line {number}: {_short(pair)} was found where a pair 'index value' was expected.")
        if not re.fullmatch(r"\d{1,18}", parts[0], re.ASCII) or int(parts[0]) >= len(attributes):
            raise DataError(
                f"{path}, line {number}: the index {_short(parts[0])} is not an attribute number from 0 to "
                f"{len(attributes) - 1}."
            )
        column = int(parts[0])
        if column <= previous:
            raise DataError(
                f"{path}, line {number}: the index {column} comes after {previous}; "
                "indices must increase, and none may occur twice."
            )
        previous = column
        yield column, _parse_value(path, number, parts[1], attributes[column])


def _split_row(path: str, number: int, row: str) -> list[str]:
    """Split at the commas that are not inside quotes."""
    if "'" not in row and '"' not in row:
        return [value.strip() for value in row.split(",")]
    values: list[str] = []
    position, end = 0, ","
    while end == ",":
        match = _ROW_VALUE.match(row, position)
        if match is None:
            raise DataError(f"{path}, line {number}: a quote is opened in {_short(row[position:])} and never closed.")
        values.append(match[1].strip())
        position, end = match.end(), match[2]
    return values


def _parse_value(path: str, number: int, text: str, attribute: _Attribute) -> float:
    place = f"{path}, line {number}, attribute {attribute.name!r}"
    if text == "?":
        raise DataError(f"{place}: the value is missing ('?'); every value is needed.")
    if attribute.values is not None and attribute.numbers is not None:
        value = _unquote(text)
        if value in attribute.values:
            return attribute.numbers[attribute.values.index(value)]
        if attribute.by_number and _NUMBER.fullmatch(value) and float(value) in attribute.numbers:
            return float(value)
        raise DataError(f"{place}: {_short(text)} is not one of the values {_short(','.join(attribute.values))}.")
    if not _NUMBER.fullmatch(text):
        raise DataError(f"{place}: {_short(text)} is not a finite number.")
    if not math.isfinite(float(text)):
        raise DataError(f"{place}: {_short(text)} is too large for a float64.")
    return float(text)


def _check_label_values(
    path: str, header: _Header, label_columns: NDArray[np.int64], wrong: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    """Refuse labels other than 0 and 1; `wrong` has the row and the label of the first of these values."""
    if len(wrong):
        row, label = wrong[0]
        raise DataError(
            f"{path}, line {header.row_lines[row]}: the label {header.attributes[label_columns[label]].name!r} is "
            f"{values[0]:g}; expected 0 or 1."
        )


def _split_labels(path: str, header: _Header, table: _Table, label_columns: NDArray[np.int64]) -> MultiLabelData:
    n, m = len(header.rows), len(header.attributes)
    check_label_cells(path, n, len(label_columns))
    is_label = np.zeros(m, dtype=bool)
    is_label[label_columns] = True
    names = [attribute.name for attribute in header.attributes]
    # The position of every attribute among the labels or among the features.
    place = np.where(is_label, np.cumsum(is_label), np.cumsum(~is_label)) - 1
    X: NDArray[np.float64] | csr_array[np.float64]
    if table.rows is None or table.columns is None:
        values = table.values[:, is_label]
        wrong = np.argwhere((values != 0) & (values != 1))
        _check_label_values(path, header, label_columns, wrong[:1], values[(values != 0) & (values != 1)])
        labels = values.astype(np.int8)
        X = np.ascontiguousarray(table.values[:, ~is_label])
    else:
        of_label = is_label[table.columns]
        values, at = table.values[of_label], np.stack([table.rows[of_label], place[table.columns[of_label]]], axis=1)
        other = np.flatnonzero((values != 0) & (values != 1))
        _check_label_values(path, header, label_columns, at[other[:1]], values[other])
        labels = np.zeros((n, len(label_columns)), np.int8)
        labels[at[:, 0], at[:, 1]] = values
        # Zeros that are spelled out do not belong in a CSR matrix.
        kept = ~of_label & (table.values != 0)
        row_ends = np.cumsum(np.bincount(table.rows[kept], minlength=n))
        X = csr_array(
            (
                table.values[kept],
                place[table.columns[kept]].astype(np.int32),
                np.concatenate([[0], row_ends]).astype(np.int32),
            ),
            shape=(n, m - len(label_columns)),
        )
    return MultiLabelData(
        X,
        labels,
        [name for name, label in zip(names, is_label, strict=True) if not label],
        [names[column] for column in label_columns],
    )
