"""Real data sets that are only read from the user's directory: put the files there, under the names given below.

Conventions
-----------
The directory is found as in `maxmargin.datasets.fetch`. Nothing here is downloaded, so that `download` changes nothing; it
is a parameter so that all fetchers are called alike.

    conll2000/conll2000.zip          train.txt and test.txt, in columns word, part of speech, chunk tag
    ocr-letters/letters.npz          pixels (N, 16) uint8, bit-packed; labels (N,), 0 for a; word_lengths (S,); folds (S,)
    covtype/covtype.csv              a header, 54 columns of numbers, and the class; possibly .xz, .gz or .bz2
    treebank-sample/treebank.zip     bracketed trees, .mrg
    binary/NAME.trn, NAME.tst        two classes, LIBSVM text, possibly .xz, .gz or .bz2; NAME is ijcnn1 or reuters
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from maxmargin.datasets.fetch import Subset, data_directory
from maxmargin.errors import DataError, OptionError
from maxmargin.formats.compression import open_text
from maxmargin.formats.conll import Sentence, read_conll
from maxmargin.formats.npz import read_npz
from maxmargin.formats.svm_hmm import SequenceData
from maxmargin.formats.svmlight import ClassData, read_svmlight_classes

if TYPE_CHECKING:
    from maxmargin.parsing.trees import Tree

_SUFFIXES = ("", ".xz", ".gz", ".bz2")


def fetch_conll2000(
    data_home: str | os.PathLike[str] | None = None, subset: Subset = "train", download: bool = True
) -> tuple[list[Sentence], list[list[str]]]:
    """Read CoNLL-2000: chunks in sentences of the Wall Street Journal, 8,936 for training and 2,012 for testing.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which sentences.
    download : bool
        Changes nothing.

    Returns
    -------
    sentences : list of lists of tuples (word, part of speech)
    tags : list of lists of str
        B-TYPE, I-TYPE and O.
    """
    _check_subset(subset)
    return read_conll(_find("conll2000", "conll2000.zip", data_home) / f"{subset}.txt")


def fetch_ocr_letters(
    data_home: str | os.PathLike[str] | None = None,
    subset: Subset = "train",
    download: bool = True,
    setting: Literal["small", "large"] = "small",
) -> SequenceData:
    """Read Taskar's handwritten words: 6,877 words of 52,152 letters, in ten folds.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which words.
    download : bool
        Changes nothing.
    setting : {"small", "large"}
        Small: train with the first fold (626 words) and test on the rest. Large: the other way round.

    Returns
    -------
    SequenceData
        `X` is an ndarray of zeros and ones, 16 by 8 pixels a letter; tags are the letters a to z; qids are the words'
        places in the file.
    """
    _check_subset(subset)
    if setting not in ("small", "large"):
        raise OptionError(f"setting is {setting!r}; expected 'small' or 'large'.")
    path = _find("ocr-letters", "letters.npz", data_home)
    pixels, labels, lengths, folds = _read_letters(path)
    chosen = (folds == 0) == ((subset == "train") == (setting == "small"))
    rows = np.repeat(chosen, lengths)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return SequenceData(
        np.unpackbits(pixels[rows], axis=1).astype(np.float64),
        lengths[chosen],
        letters[labels[rows]],
        np.flatnonzero(chosen),
    )


def fetch_covtype(data_home: str | os.PathLike[str] | None = None, download: bool = True) -> ClassData:
    """Read covtype: the forest cover of 581,012 patches of land, with 54 features, in 7 classes.

    There is no usual split, and the features are as they were measured, from 0 or 1 to thousands of metres: scale them.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    download : bool
        Changes nothing.

    Returns
    -------
    ClassData
        `X` is an ndarray; the classes are 1 to 7.
    """
    path = _find("covtype", "covtype.csv", data_home)
    with open_text(path) as stream:
        names = stream.readline().strip().split(",")
        try:
            table = np.loadtxt(stream, delimiter=",", dtype=np.float64, ndmin=2)
        except DataError:
            raise
        except ValueError as error:
            # NumPy counts the rows from 0 or from 1, by the kind of error, and from the line after the header.
            raise DataError(f"{path}: a row after the header cannot be read: {error}") from error
    if len(names) < 2 or table.shape[1] != len(names) or not np.isfinite(table).all():
        raise DataError(f"{path}: {table.shape[1]} columns of numbers, or fewer, for the {len(names)} names in line 1.")
    return ClassData(np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64), names[:-1])


def fetch_treebank_sample(data_home: str | os.PathLike[str] | None = None, download: bool = True) -> list[Tree]:
    """Read the sample of the Penn treebank: 3,914 trees of the Wall Street Journal, without traces and functions.

    Parameters
    ----------
    data_home : path-like, optional
        The directory of all data sets.
    download : bool
        Changes nothing.

    Returns
    -------
    list of Tree
        In the order of the files. `maxmargin.parsing.treebank.read_trees` has more choices.
    """
    from maxmargin.parsing.treebank import read_trees

    path = _find("treebank-sample", "treebank.zip", data_home)
    return list(read_trees(path, remove_traces=True, remove_functions=True))


def fetch_binary(
    name: Literal["ijcnn1", "reuters"],
    data_home: str | os.PathLike[str] | None = None,
    subset: Subset = "train",
    download: bool = True,
) -> ClassData:
    """Read two classes: ijcnn1 (49,990 rows of 22 features; 91,701 to test) or reuters (7,770 of 8,315 words; 3,299 to test).

    Parameters
    ----------
    name : {"ijcnn1", "reuters"}
        Which data set.
    data_home : path-like, optional
        The directory of all data sets.
    subset : {"train", "test"}
        Which examples.
    download : bool
        Changes nothing.

    Returns
    -------
    ClassData
        `X` is a csr_array; the classes are -1 and 1.
    """
    _check_subset(subset)
    columns = {"ijcnn1": 22, "reuters": 8315}
    if name not in columns:
        raise OptionError(f"name is {name!r}; expected 'ijcnn1' or 'reuters'.")
    path = _find("binary", f"{name}.{'trn' if subset == 'train' else 'tst'}", data_home)
    return read_svmlight_classes(path, columns[name], [-1, 1], zero_based=False)


def _check_subset(subset: str) -> None:
    if subset not in ("train", "test"):
        raise OptionError(f"subset is {subset!r}; expected 'train' or 'test'.")


def _find(name: str, file: str, data_home: str | os.PathLike[str] | None) -> Path:
    """The path of a file that the user has put there."""
    plain = data_directory(data_home) / name / file
    for suffix in _SUFFIXES if plain.suffix in (".csv", ".trn", ".tst") else ("",):
        path = plain.with_name(plain.name + suffix)
        if path.is_file():
            return path
    raise DataError(f"The data set {name} cannot be downloaded; put the file at {plain}.")


def _read_letters(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[Any]]:
    names = ("pixels", "labels", "word_lengths", "folds")
    try:
        arrays = read_npz(path, names)
        pixels, labels, lengths, folds = (arrays[name] for name in names)
    except (DataError, LookupError) as error:
        raise DataError(f"{path}: this is no npz file with the arrays {', '.join(names)} ({error}).") from error
    if (
        pixels.dtype != np.uint8
        or any(one.ndim != 1 or one.dtype.kind not in "iu" for one in (labels, lengths, folds))
        or pixels.shape != (len(labels), 16)
        or lengths.shape != folds.shape
        or lengths.min(initial=1) < 1
        or lengths.sum(dtype=np.int64) != len(labels)
        or labels.max(initial=0) > 25
        or labels.min(initial=0) < 0
    ):
        raise DataError(f"{path}: the arrays {', '.join(names)} do not fit together.")
    return pixels, labels, lengths.astype(np.int64), folds
