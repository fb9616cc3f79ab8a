"""What makes features of words, as files keep it: a name and options for the header, and the names of the columns as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.errors import MaxMarginError, ModelFileError
from maxmargin.features.text import TextFeatures
from maxmargin.features.vectoriser import FeatureColumns, Vectoriser

VECTORISERS: dict[str, type[FeatureColumns]] = {"vectoriser": Vectoriser, "text": TextFeatures}


def name_arrays(names: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Names of many columns: their characters in UTF-8, one name after another, and how many each has."""
    if names is None:
        return {}
    text = "".join(names.tolist()).encode("utf-8", "surrogatepass")
    return {
        "names_text": np.frombuffer(text, np.uint8),
        "names_length": np.array(list(map(len, names)), np.int64),
    }


def vectoriser_of(saved: dict[str, Any]) -> FeatureColumns:
    """What makes features, by its name and options."""
    if saved["name"] not in VECTORISERS:
        raise ModelFileError(
            f"it names the vectoriser {saved['name']!r}, and this version knows {', '.join(VECTORISERS)}."
        )
    made = VECTORISERS[saved["name"]](**saved["options"])
    made.check_options()
    return made


def restore_vectoriser(
    saved: dict[str, Any], arrays: Mapping[str, NDArray[Any]], p: int, place: str = ""
) -> FeatureColumns:
    """The same with its p columns; `place` is how sentences about it begin, if nobody else says that."""
    try:
        return _restored(saved, arrays, p)
    except MaxMarginError as error:
        if not place:
            raise
        raise ModelFileError(f"{place}{error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        if not place:
            raise
        raise ModelFileError(f"{place}its vectoriser is damaged ({type(error).__name__}: {error}).") from error


def _restored(saved: dict[str, Any], arrays: Mapping[str, NDArray[Any]], p: int) -> FeatureColumns:
    vectoriser, names = vectoriser_of(saved), None
    if vectoriser.n_hash is None:
        text = arrays["names_text"].astype(np.uint8, casting="safe").tobytes().decode("utf-8", "surrogatepass")
        length = arrays["names_length"].astype(np.int64, casting="safe")
        ends = np.cumsum(length)
        if length.min(initial=0) < 0 or length.sum() != len(text):
            raise ModelFileError("the lengths of its feature names do not fit their text.")
        names = [text[end - n : end] for n, end in zip(length.tolist(), ends.tolist(), strict=True)]
    vectoriser.set_columns(names)
    if vectoriser.n_features_ != p or (names is not None and len(set(names)) != p):
        raise ModelFileError(f"its vectoriser has {vectoriser.n_features_} columns, not {p} that differ.")
    return vectoriser
