"""What readers of words share: the features that ``--features`` names, and the columns that a model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maxmargin.errors import DataError, OptionError

if TYPE_CHECKING:
    from maxmargin.features import TextFeatures


def columns_read(path: str, model: Any) -> list[str]:
    """The names of the columns of words that a model reads."""
    names = getattr(getattr(model, "features", None), "columns", None)
    if names is None:
        raise DataError(f"{path} holds words, but the model was not trained on words.")
    return list(names)


def text_features(path: str, name: str | None, width: int) -> TextFeatures:
    """The features that ``--features`` names, of words with so many columns."""
    from maxmargin.features import TextFeatures

    columns = ("word", "pos", *(f"column{k}" for k in range(3, width + 1)))[:width]
    if name is None:
        name = "tagging" if width == 1 else "chunking"
    if name == "chunking" and width == 1:
        raise OptionError(f"--features is chunking, but {path} has no column between the word and the tag.")
    if name == "words":
        return TextFeatures(columns=columns)
    return TextFeatures.chunking(columns=columns) if name == "chunking" else TextFeatures.tagging(columns=columns)
