"""The errors a user can meet. Every message is a sentence: the place, what was found and what was expected."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The known name nearest to one that is not known, as a question that begins with a space; "" if none is near."""
    from difflib import get_close_matches

    # Numbers are near by their values, not by their digits.
    if str(name).lstrip("+-").replace(".", "", 1).isdigit():
        return ""
    # Small and capital letters are not a difference, nor is the mark between two words.
    spelled = {str(one).lower().replace("_", "-"): one for one in known}
    nearest = get_close_matches(str(name).lower().replace("_", "-"), spelled, n=1)
    return f' Did you mean "{spelled[nearest[0]]}"?' if nearest else ""


class MaxMarginError(Exception):
    """Base of all errors raised on purpose by this library.

    Attributes
    ----------
    example : int or None
        The number of the example that it is about, where it is about one of a batch.
    """

    def __init__(self, *words: object, example: int | None = None) -> None:
        super().__init__(*words)
        self.example = example


class DataError(MaxMarginError, ValueError):
    """The examples are not what the model expects: wrong shape, NaN, unknown label, unreadable file."""


class WrongTypeError(DataError, TypeError):
    """An object that is no number stands where a number should be; it is a TypeError, too, as scikit-learn has it."""


class OptionError(MaxMarginError, ValueError):
    """A parameter has a value that it cannot have."""


class ModelFileError(MaxMarginError, ValueError):
    """A model file is truncated, altered, oversized, from a newer version, or no model file at all."""


class TooLargeError(MaxMarginError, ValueError):
    """An exact method was asked for a problem beyond what it can enumerate."""


class TemperatureError(OptionError):
    """A temperature so low that marginals at it would be lost to rounding."""
