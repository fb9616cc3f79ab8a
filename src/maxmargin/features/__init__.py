"""From what users have, words and named values, to feature matrices."""

from maxmargin.features.text import TextFeatures
from maxmargin.features.vectoriser import Vectoriser

__all__ = ["TextFeatures", "Vectoriser"]
