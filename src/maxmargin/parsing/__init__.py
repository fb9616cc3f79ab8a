"""Parsing with context-free grammars: trees, treebanks, grammars, charts, and parse forests to train on."""
