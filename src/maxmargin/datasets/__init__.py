"""Data to train on: synthetic sets made on the spot, and fetchers of the real sets of the literature."""

from maxmargin.datasets.fetch import (
    fetch_bibtex,
    fetch_msrc21,
    fetch_rcv1subset1,
    fetch_scene,
    fetch_tmc2007,
    fetch_yeast,
)
from maxmargin.datasets.local import (
    fetch_binary,
    fetch_conll2000,
    fetch_covtype,
    fetch_ocr_letters,
    fetch_treebank_sample,
)
from maxmargin.datasets.synthetic import make_synth1, make_synth2

__all__ = [
    "fetch_bibtex",
    "fetch_binary",
    "fetch_conll2000",
    "fetch_covtype",
    "fetch_msrc21",
    "fetch_ocr_letters",
    "fetch_rcv1subset1",
    "fetch_scene",
    "fetch_tmc2007",
    "fetch_treebank_sample",
    "fetch_yeast",
    "make_synth1",
    "make_synth2",
]
