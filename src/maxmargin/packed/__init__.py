"""Data larger than memory: folders of arrays that are mapped, not read, and what makes them of text files."""

from maxmargin.packed.data import PackedData, PackedLabels, PackedRows, PackedSequences, read_packed
from maxmargin.packed.packing import pack

__all__ = ["PackedData", "PackedLabels", "PackedRows", "PackedSequences", "pack", "read_packed"]
