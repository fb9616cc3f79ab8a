"""The files that this library reads and writes: data sets in, models in and out.

Every reader names the file and the line (or the array) in its errors, and none executes anything it reads.
"""

from maxmargin.formats.arff import read_mulan
from maxmargin.formats.atomic import atomic_write, check_writable
from maxmargin.formats.compression import open_binary, open_text
from maxmargin.formats.conll import read_conll, write_conll
from maxmargin.formats.conllu import conllu_text, read_conllu
from maxmargin.formats.graphs import GraphData, read_graphs, write_graphs
from maxmargin.formats.images import image_graph, read_image_masks, write_masks
from maxmargin.formats.json_lines import read_token_json
from maxmargin.formats.model_file import read_header, read_model, write_model
from maxmargin.formats.multilabel import MultiLabelData
from maxmargin.formats.spacy_json import TextData, read_spacy_json
from maxmargin.formats.svm_hmm import SequenceData, read_svm_hmm, write_svm_hmm
from maxmargin.formats.svmlight import (
    ClassData,
    LabelledRows,
    read_libsvm_multilabel,
    read_svmlight,
    read_svmlight_classes,
    write_libsvm_multilabel,
    write_svmlight_classes,
)
from maxmargin.formats.table import Table, read_table

__all__ = [
    "ClassData",
    "GraphData",
    "LabelledRows",
    "MultiLabelData",
    "SequenceData",
    "Table",
    "TextData",
    "atomic_write",
    "check_writable",
    "conllu_text",
    "image_graph",
    "open_binary",
    "open_text",
    "read_conll",
    "read_conllu",
    "read_graphs",
    "read_header",
    "read_image_masks",
    "read_libsvm_multilabel",
    "read_model",
    "read_mulan",
    "read_spacy_json",
    "read_svm_hmm",
    "read_svmlight",
    "read_svmlight_classes",
    "read_table",
    "read_token_json",
    "write_conll",
    "write_graphs",
    "write_libsvm_multilabel",
    "write_masks",
    "write_model",
    "write_svm_hmm",
    "write_svmlight_classes",
]
