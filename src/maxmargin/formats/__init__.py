"""The files that this library reads and writes: data sets in, models in and out.

Every reader names the file and the line (or the array) in its errors, and none executes anything it reads.
"""

from maxmargin.formats.arff import read_mulan
from maxmargin.formats.atomic import atomic_write, check_writable
from maxmargin.formats.compression import open_binary, open_text
from maxmargin.formats.graphs import GraphData, read_graphs, write_graphs
from maxmargin.formats.model_file import read_header, read_model, write_model
from maxmargin.formats.multilabel import MultiLabelData
from maxmargin.formats.svmlight import read_libsvm_multilabel, write_libsvm_multilabel

__all__ = [
    "GraphData",
    "MultiLabelData",
    "atomic_write",
    "check_writable",
    "open_binary",
    "open_text",
    "read_graphs",
    "read_header",
    "read_libsvm_multilabel",
    "read_model",
    "read_mulan",
    "write_graphs",
    "write_libsvm_multilabel",
    "write_model",
]
